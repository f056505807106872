"""Anybody can check the log through the API alone."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest

from authority_server import RunningAuthority, file_key
from authority_world import KeyOwner, make_authority
from nsmark.core.texts import decode_lines, lines_digest
from nsmark.corpus import pool_texts
from nsmark.identity import PublicKey
from nsmark.payload.word_list import ordinary_word_list, published_word_list
from nsmark_authority.receipt import Receipt
from nsmark_authority.service import Authority
from nsmark_authority.statements import entry_id_of
from nsmark_authority.transparency import (
    NoteKey,
    check_consistency,
    check_inclusion,
    hash_leaf,
    open_checkpoint,
)
from nsmark_authority.transparency.strict_base64 import decode_base64
from nsmark_authority.web.app import create_app
from nsmark_authority.web.receipts import check_content
from processes import PATIENCE

JSON = {"Content-Type": "application/json"}


def proof_of(document: dict[str, object]) -> list[bytes]:
    return [decode_base64(text, "proof") for text in document["proof"]]


def test_the_log_is_proven_entry_by_entry(
    server: RunningAuthority, client: httpx.Client, claimant: KeyOwner
) -> None:
    document, content = claimant.filing(70)
    file_key(client, document, content)
    key = NoteKey(server.name, PublicKey.from_pem(server.about["public_key"]))
    new = open_checkpoint(client.get("/v1/log/checkpoint").content, key)
    old = open_checkpoint(client.get("/v1/log/checkpoint?size=3").content, key)
    entries, start = [], 0
    while start is not None:
        part = client.get("/v1/log/entries", params={"start": start, "count": 3}).json()
        entries += part["items"]
        start = part["next"]

    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    assert len(entries) >= new.size > 3
    for entry in entries[: new.size]:
        octets = decode_base64(entry["entry"], "entry")
        assert entry_id_of(octets) == entry["entry_id"]
        query = {"entry_id": entry["entry_id"], "size": new.size}
        found = client.get("/v1/log/inclusion", params=query).json()
        check_inclusion(
            proof_of(found),
            leaf=hash_leaf(octets),
            index=entry["index"],
            size=new.size,
            root=new.root,
        )
    grown = client.get("/v1/log/consistency", params={"old": 3, "new": new.size}).json()
    check_consistency(
        proof_of(grown), old_size=3, new_size=new.size, old_root=old.root, new_root=new.root
    )
    assert client.get(f"/v1/log/entries/{entries[-1]['index']}").json() == entries[-1]


def test_a_receipt_is_made_anew_and_checked(client: httpx.Client, claimant: KeyOwner) -> None:
    document, content = claimant.filing(71)
    given = file_key(client, document, content).content
    file_key(client, *claimant.filing(72))

    fresh = client.get(f"/v1/receipts/{entry_id_of(document)}").content

    assert Receipt.parse(fresh).entry == Receipt.parse(given).entry == document
    for receipt in (given, fresh):
        checked = client.post("/v1/receipts/check", content=receipt, headers=JSON).json()
        assert checked["valid"]
        assert checked["in_log"]
        assert (checked["kind"], checked["owner"]) == ("filing", "Owner 1")
        assert checked["local_time"] is True


def _with_last_letter_swapped(text: str) -> str:
    """Change one letter that any text has, unlike a given one: most of these are random base64."""
    return re.sub(r"[A-Za-z](?=[^A-Za-z]*$)", lambda found: found.group().swapcase(), text)


@pytest.mark.parametrize("member", ["entry", "checkpoint", "token", "proof", "index", "local_time"])
def test_an_altered_receipt_is_not_valid(
    client: httpx.Client, claimant: KeyOwner, member: str
) -> None:
    document, content = claimant.filing(73)
    receipt = json.loads(file_key(client, document, content).content)
    value = receipt[member]
    if isinstance(value, str):
        receipt[member] = _with_last_letter_swapped(value)
    else:
        receipt[member] = {list: ["AAAA"], int: 10**6, bool: False}[type(value)]

    answer = client.post("/v1/receipts/check", json=receipt)

    assert answer.status_code == 200
    assert not answer.json()["valid"]
    assert answer.json()["reason"]
    assert answer.json()["hint"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b'{"format":1}', b"[" * 9999])
def test_what_is_no_receipt_proves_nothing(client: httpx.Client, content: bytes) -> None:
    answer = client.post("/v1/receipts/check", content=content, headers=JSON)

    assert answer.status_code == 200
    assert answer.json()["valid"] is False


def test_a_receipt_of_another_authority_is_not_ours(
    serve, authority: Authority, owner: KeyOwner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = make_authority(tmp_path_factory.mktemp("foreign"))
    KeyOwner(1).register(foreign)
    receipt = KeyOwner(1).file(foreign).to_json()
    foreign.close()
    with httpx.Client(base_url=serve(), trust_env=False, timeout=PATIENCE) as client:
        checked = client.post("/v1/receipts/check", content=receipt, headers=JSON).json()

    assert not checked["valid"]
    assert "another authority key" in checked["reason"]


def test_a_receipt_outlives_a_change_of_time_stamps(
    authority: Authority, owner: KeyOwner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After the change the roots on record are used, of which the receipt itself has no say."""
    receipt = owner.file(authority).to_json()
    other = make_authority(tmp_path_factory.mktemp("other"))
    try:
        authority._stamper = other._stamper
        assert authority.roots == other.roots
        context = create_app(authority).state.context
        checked = asyncio.run(check_content(context, receipt))
    finally:
        other.close()

    assert checked.valid
    assert checked.in_log


def test_the_packages_own_texts_are_published(client: httpx.Client) -> None:
    expected = {
        published_word_list().digest: list(published_word_list().words),
        ordinary_word_list().digest: list(ordinary_word_list().words),
        lines_digest(pool_texts()): list(pool_texts()),
    }
    published = client.get("/v1/publications").json()["items"]

    assert {each["digest"] for each in published} == set(expected)
    for digest, lines in expected.items():
        answer = client.get(f"/v1/publications/{digest}/content")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert decode_lines(answer.content) == lines


def test_admins_publish(serve, authority: Authority, owner: KeyOwner) -> None:
    admin = authority.accounts.issue(("admin",)).token
    form = {"what": (None, "pool"), "name": (None, "a pool"), "content": ("p", b"one\ntwo\n")}
    with httpx.Client(base_url=serve(), trust_env=False, timeout=PATIENCE) as client:
        headers = {"Authorization": f"Bearer {admin}"}
        done = client.post("/v1/publications", files=form, headers=headers)
        twice = client.post("/v1/publications", files=form, headers=headers)
        odd = client.post(
            "/v1/publications", files=form | {"what": (None, "poem")}, headers=headers
        )
        renamed = client.post(
            "/v1/publications", files=form | {"name": (None, "mine")}, headers=headers
        )
        refused = client.post("/v1/publications", files=form)
        found = client.get(f"/v1/publications/{lines_digest(['one', 'two'])}").json()

    assert (done.status_code, twice.status_code) == (201, 200)
    assert done.content == twice.content
    assert (odd.status_code, renamed.status_code) == (422, 409)
    assert refused.status_code == 401
    assert (found["what"], found["name"]) == ("pool", "a pool")
