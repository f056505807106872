"""The client against a real ``nsmark serve``, and against one that lies."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the authority extra")

from authority_server import RunningAuthority, running_authority
from authority_world import RELEASED, KeyOwner, admit, small_key
from handmade_keys import make_key
from nsmark.corpus import pool_texts
from nsmark.errors import ClaimError, UsageError
from nsmark.keyfile import write_key
from nsmark.suspects import save_recorded
from nsmark_authority.client import AuthorityClient, TrustedAuthority
from nsmark_authority.errors import (
    AccessDeniedError,
    AuthorityError,
    ConflictError,
    NotFoundError,
    RewrittenLogError,
    TransparencyError,
)
from nsmark_authority.receipt import Receipt
from nsmark_authority.service import Authority, open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.statements import Filing, Ruling
from processes import PATIENCE
from watched_log import respond, serving

ENDPOINT = "openai:https://models.example/v1#encoder"
_seeds = itertools.count(20)
REPORT = b"<!doctype html><title>report</title>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAuthority]:
    with running_authority(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def inside(server: RunningAuthority) -> Iterator[Authority]:
    """The same authority, as its worker sees it."""
    opened = open_authority(AuthoritySettings(folder=server.folder))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def trust(server: RunningAuthority) -> TrustedAuthority:
    with AuthorityClient(server.url) as stranger:
        return stranger.describe()


@pytest.fixture
def client(server: RunningAuthority, trust: TrustedAuthority) -> Iterator[AuthorityClient]:
    with AuthorityClient(server.url, trust=trust) as opened:
        yield opened


@pytest.fixture
def owner(client: AuthorityClient) -> KeyOwner:
    """Somebody new, whose token the client has."""
    somebody = KeyOwner(next(_seeds), client.trust.name)
    client.register(somebody.identity, somebody.name)
    return somebody


@pytest.fixture
def key_file(owner: KeyOwner, tmp_path: Path) -> Path:
    path = tmp_path / "owner.nsmark"
    write_key(small_key(0, owner.seed), path)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "outputs.safetensors"
    rows = np.random.default_rng(len(str(tmp_path))).random((4, 3))
    save_recorded(path, rows, rows)
    return path


def ruling_for(inside: Authority, dispute: str, key_id: str) -> Ruling:
    return Ruling(
        authority=inside.name,
        dispute=dispute,
        key_id=key_id,
        outcome="not_shown",
        verdict="not_shown",
        reasons=("nothing was found",),
        evidence={"extraction_rate": 0.1},
        report_sha256=hashlib.sha256(REPORT).hexdigest(),
        randomness="0" * 64,
        defence=None,
        other_claims=(),
        opened=RELEASED,
        measured=RELEASED,
        versions={"nsmark": "0.1.0"},
    )


# --- What owners do. ---


def test_a_description_is_checked_against_the_trusted_key(client, trust):
    about = client.authority()

    assert about["name"] == trust.name
    assert trust.local_time
    liar = TrustedAuthority.of(
        trust.url,
        name=trust.name,
        public_key=KeyOwner(3).pem,
        roots=about["roots"],
        local_time=True,
    )
    with (
        AuthorityClient(trust.url, trust=liar) as other,
        pytest.raises(TransparencyError, match="KEY HAS CHANGED"),
    ):
        other.authority()


def test_a_key_is_filed_and_its_receipt_holds(client, owner, key_file):
    sent: list[tuple[int, int]] = []
    given = client.file(key_file, owner.identity, on_progress=lambda *s: sent.append(s[:2]))

    filing = given.statement(Filing)
    assert filing.content_sha256 == hashlib.sha256(key_file.read_bytes()).hexdigest()
    assert filing.model_digest is None
    assert sent[-1][0] == sent[-1][1] > key_file.stat().st_size
    assert [each[0] for each in sent] == sorted(each[0] for each in sent)
    # Again: nothing new happens.
    assert client.file(key_file, owner.identity).receipt.to_json() == given.receipt.to_json()

    shown, row = client.claim(filing.key_id)
    assert shown.entry_id == given.entry_id
    assert row["state"] == "waiting"
    assert client.claim(given.entry_id)[1] == row
    assert [each["key_id"] for each in client.search(key=filing.key_id[:20])] == [filing.key_id]
    fresh = client.receipt(given.entry_id)
    assert fresh.checked.tree_size >= given.checked.tree_size
    assert client.log.check_inclusion(fresh.receipt.entry, fresh.entry_id)[0] == fresh.checked.index


def test_an_encrypted_key_is_filed_as_it_is_inside(client, owner, tmp_path):
    path = tmp_path / "sealed.nsmark"
    key = small_key(1, owner.seed)
    write_key(key, path, b"passphrase")

    filing = client.file(path, owner.identity, passphrase=b"passphrase").statement(Filing)

    assert filing.key_id == key.key_id


def test_a_successor_names_its_predecessor(client, owner, key_file, tmp_path):
    client.file(key_file, owner.identity)
    second = tmp_path / "second.nsmark"
    write_key(small_key(1, owner.seed), second)
    predecessor = small_key(0, owner.seed).key_id

    filing = client.file(second, owner.identity, predecessor, with_model_digest=True)

    assert filing.statement(Filing).succeeds == predecessor
    assert filing.statement(Filing).model_digest == small_key(1, owner.seed).model_digest


def test_somebody_elses_key_is_not_even_sent(client, owner, tmp_path):
    path = tmp_path / "foreign.nsmark"
    write_key(small_key(0, 1), path)

    with pytest.raises(ClaimError, match="another identity"):
        client.file(path, owner.identity)


def test_registering_again_gives_a_new_token_and_the_old_receipt(client, owner):
    first = client.register(owner.identity, owner.name)
    second = client.register(owner.identity, owner.name)

    assert first.token != second.token
    assert first.given.entry_id == second.given.entry_id
    assert first.token not in repr(client)
    with pytest.raises(ConflictError):
        client.register(owner.identity, "Another Name")
    assert owner.name in {row["owner"] for row in client.owners(owner.name.upper())}


def test_recorded_outputs_and_a_model_folder_are_deposited(client, owner, recorded, tmp_path):
    given = client.deposit(recorded, owner.identity, note="ours")
    assert client.subject(given.entry_id)[0] == "deposit"
    assert client.deposited(given.entry_id)["has_content"] is True

    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "README.md").write_text("stays behind")
    (folder / "model.safetensors").write_bytes(recorded.read_bytes())
    dated = client.deposit(folder, owner.identity, hand_over=False)
    assert client.deposited(dated.entry_id)["has_content"] is False

    handed = client.deposit(folder, owner.identity)

    assert handed.entry_id == dated.entry_id
    assert client.deposited(dated.entry_id)["has_content"] is True
    (folder / "README.md").write_text("changed, and of no matter")
    assert client.deposit(folder, owner.identity).entry_id == dated.entry_id


def test_a_dispute_from_its_opening_to_its_ruling(client, server, trust, inside, owner, key_file):
    filed = client.file(key_file, owner.identity)
    key_id = filed.statement(Filing).key_id
    with pytest.raises(ConflictError, match="not admitted"):
        client.dispute(key_id, ENDPOINT, owner.identity, released=RELEASED, statement="mine")
    admit(inside, filed.entry_id)
    assert client.wait(filed.entry_id, timeout_seconds=PATIENCE)[1]["state"] == "admitted"

    opened = client.dispute(
        key_id, ENDPOINT, owner.identity, released=RELEASED, statement="this is ours"
    )

    assert client.subject(opened.entry_id)[0] == "dispute"
    assert client.filing(filed.entry_id)["state"] == "revealed"
    with pytest.raises(AuthorityError, match="still 'open'"):
        client.wait(opened.entry_id, timeout_seconds=0)
    with pytest.raises(NotFoundError):
        client.ruling(opened.entry_id)

    with AuthorityClient(server.url, trust=trust) as other:
        respondent = KeyOwner(next(_seeds), trust.name)
        other.register(respondent.identity, respondent.name)
        answered = other.answer(
            opened.entry_id, respondent.identity, evidence=None, statement="not so"
        )
    state = client.dispute_state(opened.entry_id)
    assert [row["entry_id"] for row in state["defences"]] == [answered.entry_id]
    assert state["num_defences"] == 1
    assert client.defences(opened.entry_id) == state["defences"]

    inside.record_ruling(ruling_for(inside, opened.entry_id, key_id), REPORT)

    kind, row = client.wait(opened.entry_id, timeout_seconds=PATIENCE)
    assert (kind, row["outcome"]) == ("dispute", "not_shown")
    assert client.ruling(opened.entry_id).statement(Ruling).reasons == ("nothing was found",)
    assert client.report(opened.entry_id) == REPORT
    assert opened.entry_id in {row["entry_id"] for row in client.disputes("ruled")}


def test_what_is_withdrawn_is_over(client, owner, key_file):
    filed = client.file(key_file, owner.identity)

    client.withdraw(filed.entry_id, owner.identity, reason="by mistake")

    assert client.filing(filed.entry_id)["state"] == "withdrawn"


def test_recorded_outputs_are_sent_with_a_dispute(client, inside, owner, key_file, recorded):
    filed = client.file(key_file, owner.identity)
    admit(inside, filed.entry_id)

    opened = client.dispute(
        filed.statement(Filing).key_id,
        f"recorded:{recorded}",
        owner.identity,
        released=RELEASED,
        statement="these are ours",
    )

    suspect = client.dispute_state(opened.entry_id)["suspect"]
    assert suspect["content_sha256"] == hashlib.sha256(recorded.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"released": "yesterday"}, "released"),
        ({"statement": "a\x1b[2J"}, "statement"),
        ({"suspect": "onnx:model.onnx"}, "ONNX"),
        ({"suspect": "nowhere"}, "no suspect"),
        ({"suspect": "openai:https://u:p@h/v1#m"}, "password"),
        ({"suspect": "openai:https://h/v1#" + "m" * 300}, "model"),
    ],
)
def test_what_a_user_gets_wrong_is_said_before_anything_is_sent(client, owner, change, message):
    said = {"suspect": ENDPOINT, "released": RELEASED, "statement": "mine"} | change
    with pytest.raises(UsageError, match=message):
        client.dispute("0" * 64, said.pop("suspect"), owner.identity, **said)


def test_what_no_log_takes_is_said_before_anything_is_sent(client, owner, recorded, tmp_path):
    with pytest.raises(UsageError, match="owner"):
        client.register(owner.identity, "two\nlines")
    with pytest.raises(UsageError, match="note"):
        client.deposit(recorded, owner.identity, note="\x1b[2J")
    key = make_key(identity_seed=owner.seed, owner="bell\x07", num_texts=24, output_dim=8)
    write_key(key, tmp_path / "bell.nsmark")
    with pytest.raises(ClaimError, match=r"no control, .* but holds U\+0007"):
        client.file(tmp_path / "bell.nsmark", owner.identity)
    with pytest.raises(UsageError, match="ZERO WIDTH JOINER") as refused:
        client.register(owner.identity, "Ac\u200dme")
    assert "without" in refused.value.hint


def test_tokens_are_made_listed_and_revoked(client, server, trust, owner, key_file):
    made = client.new_token(["dispute"], 7, "second")
    with AuthorityClient(server.url, made["token"], trust) as second:
        with pytest.raises(AccessDeniedError):
            second.file(key_file, owner.identity)
        assert made["token_id"] in {row["token_id"] for row in second.tokens()}
        client.revoke_token(made["token_id"])
        with pytest.raises(AccessDeniedError):
            second.tokens()
    assert made["token"] not in json.dumps(client.tokens())


def test_pools_have_the_digest_by_which_keys_name_them(client):
    digests = {row["what"]: row["digest"] for row in client.publications()}

    row, content = client.publication(digests["pool"])

    assert row["content_bytes"] == len(content)
    assert content.decode().splitlines()[:3] == list(pool_texts())[:3]
    with pytest.raises(NotFoundError):
        client.publication("0" * 64)
    with pytest.raises(UsageError, match="no id"):
        client.publication("../authority")


def test_pages_are_put_together(client, owner, tmp_path):
    for number in range(3):
        path = tmp_path / f"{number}.nsmark"
        write_key(small_key(number, owner.seed), path)
        client.file(path, owner.identity)

    rows = [
        row for page in client._pages("/v1/filings", "f", {"owner": owner.name}, 3) for row in page
    ]
    one_by_one: list[str] = []
    cursor = None
    for _ in range(3):
        page = client._connection.get(
            "/v1/filings", {"owner": owner.name, "limit": 1, "cursor": cursor}
        ).to_json("page")
        one_by_one += [row["entry_id"] for row in page["items"]]
        cursor = page["next"]
    assert [row["entry_id"] for row in rows] == one_by_one
    assert len(client.search(owner=owner.name, limit=2)) == 2


# --- A server in between that lies. ---


class Liar:
    """Passes requests on to a real authority, and changes what it likes in the answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lies: dict[str, object] = {}
        """Path → what is answered instead: bytes, or a function of the true answer."""

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length) if length else None
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in ("content-type", "authorization")
        }
        with httpx.Client(trust_env=False, timeout=PATIENCE) as passing:
            answer = passing.request(
                request.command, self.url + request.path, content=body, headers=kept
            )
        content = answer.content
        lie = self.lies.get(urlsplit(request.path).path)
        if lie is not None:
            content = lie(content) if callable(lie) else lie
        kind = answer.headers.get("content-type", "application/json")
        respond(request, content, answer.status_code, kind)


@pytest.fixture
def liar(server, trust) -> Iterator[tuple[Liar, AuthorityClient]]:
    handler = Liar(server.url)
    with serving(handler) as url, AuthorityClient(url, trust=trust) as client:
        yield handler, client


def test_receipts_of_other_entries_are_noticed(liar, tmp_path):
    handler, client = liar
    somebody = KeyOwner(next(_seeds), client.trust.name)
    client.register(somebody.identity, somebody.name)
    paths = [tmp_path / "a.nsmark", tmp_path / "b.nsmark"]
    for number, path in enumerate(paths):
        write_key(small_key(number, somebody.seed), path)
    first = client.file(paths[0], somebody.identity)

    handler.lies["/v1/filings"] = first.receipt.to_json()
    with pytest.raises(TransparencyError, match="another entry"):
        client.file(paths[1], somebody.identity)

    handler.lies.clear()
    second = client.file(paths[1], somebody.identity)
    handler.lies[f"/v1/receipts/{second.entry_id}"] = first.receipt.to_json()
    with pytest.raises(TransparencyError, match="another entry"):
        client.receipt(second.entry_id)
    key_id = second.statement(Filing).key_id
    handler.lies.clear()
    handler.lies[f"/v1/keys/{key_id}"] = lambda content: json.dumps(
        json.loads(content) | {"owner": "Somebody Else"}
    ).encode()
    with pytest.raises(TransparencyError, match="something else than the log"):
        client.claim(key_id)


def test_receipts_that_were_tampered_with_are_noticed(liar):
    handler, client = liar
    somebody = KeyOwner(next(_seeds), client.trust.name)
    given = client.register(somebody.identity, somebody.name).given
    place = f"/v1/receipts/{given.entry_id}"

    def changed(**members: object):
        return lambda content: json.dumps(json.loads(content) | members).encode()

    for lie in (
        changed(index=given.checked.index + 1),
        changed(local_time=False),
        changed(authority="other.example"),
        changed(public_key=KeyOwner(2).pem),
        changed(proof=[]),
        changed(extra=1),
        b"{}",
        b"not json",
    ):
        handler.lies[place] = lie
        with pytest.raises(TransparencyError) as refused:
            client.receipt(given.entry_id)
        assert refused.value.hint


def test_published_material_of_another_digest_is_noticed(liar):
    handler, client = liar
    digest = next(row["digest"] for row in client.publications() if row["what"] == "word_list")
    handler.lies[f"/v1/publications/{digest}/content"] = lambda content: content.replace(b"a", b"b")
    with pytest.raises(TransparencyError, match="another digest"):
        client.publication(digest)
    handler.lies[f"/v1/publications/{digest}/content"] = lambda content: content * 50
    with pytest.raises(AuthorityError, match="more than"):
        client.publication(digest)


def test_another_report_than_the_rulings_is_noticed(liar, inside, tmp_path):
    handler, client = liar
    somebody = KeyOwner(next(_seeds), client.trust.name)
    client.register(somebody.identity, somebody.name)
    path = tmp_path / "owner.nsmark"
    write_key(small_key(0, somebody.seed), path)
    filed = client.file(path, somebody.identity)
    admit(inside, filed.entry_id)
    key_id = filed.statement(Filing).key_id
    disputes = [
        client.dispute(
            key_id, ENDPOINT, somebody.identity, released=RELEASED, statement=words
        ).entry_id
        for words in ("one", "two")
    ]
    for dispute in disputes:
        inside.record_ruling(ruling_for(inside, dispute, key_id), REPORT)
    handler.lies[f"/v1/disputes/{disputes[0]}/report"] = b"<p>another</p>"
    with pytest.raises(TransparencyError, match="not the one that the ruling names"):
        client.report(disputes[0])
    other = client.ruling(disputes[1]).receipt.to_json()
    handler.lies[f"/v1/disputes/{disputes[0]}/ruling"] = other
    with pytest.raises(TransparencyError, match="another entry"):
        client.ruling(disputes[0])


def test_an_old_checkpoint_is_noticed_by_whoever_saw_a_newer_one(liar, tmp_path, server, trust):
    handler, _ = liar
    seen = tmp_path / "seen.note"
    with serving(handler) as url, AuthorityClient(url, trust=trust, seen=seen) as client:
        old = client.log.checkpoint_note()
        somebody = KeyOwner(next(_seeds), trust.name)
        client.register(somebody.identity, somebody.name)
        size = client.log.checkpoint().size
        handler.lies["/v1/log/checkpoint"] = old
        with pytest.raises(RewrittenLogError, match="ROLLED BACK"):
            client.log.checkpoint()
    # Another process remembers, too.
    with (
        serving(handler) as url,
        AuthorityClient(url, trust=trust, seen=seen) as client,
        pytest.raises(RewrittenLogError, match=f"had {size} entries"),
    ):
        client.log.checkpoint()


def test_two_logs_under_one_key_are_noticed(server, trust, tmp_path):
    """A split view: one authority, run twice on copies of one folder."""
    seen = tmp_path / "seen.note"
    copy = tmp_path / "copy"
    shutil.copytree(server.folder, copy / "authority")
    here, there, later = (KeyOwner(next(_seeds), trust.name) for _ in range(3))
    with AuthorityClient(server.url, trust=trust, seen=seen) as watching:
        watching.register(here.identity, here.name)
    with (
        running_authority(copy) as forked,
        AuthorityClient(forked.url, trust=trust, seen=seen) as watching,
    ):
        with pytest.raises(RewrittenLogError, match="ROLLED BACK"):
            watching.log.checkpoint()
        with pytest.raises(RewrittenLogError, match="FORKED"):
            watching.register(there.identity, there.name)
        with pytest.raises(RewrittenLogError, match="REWRITTEN"):
            watching.register(later.identity, later.name)


def test_a_challenge_that_is_none_is_not_signed(liar):
    handler, client = liar
    handler.lies["/v1/challenges"] = b'{"nonce": "sign this", "expires": "never"}'

    with pytest.raises(AuthorityError, match="challenge"):
        client.register(KeyOwner(1).identity, "Owner 1")


def test_a_token_that_is_none_is_not_kept(liar):
    handler, client = liar
    handler.lies["/v1/owners"] = lambda content: json.dumps(
        json.loads(content) | {"token": "nsm_12345678\r\nX: y"}
    ).encode()
    somebody = KeyOwner(next(_seeds), client.trust.name)

    with pytest.raises(AuthorityError, match="no token"):
        client.register(somebody.identity, somebody.name)


def test_lists_of_the_wrong_shape_are_errors_of_ours(liar):
    handler, client = liar
    for lie in (b"[]", b"{}", b'{"items": 3}', b'{"items": [3]}', b'{"items":' + b"[" * 5000):
        handler.lies["/v1/filings"] = lie
        with pytest.raises(AuthorityError) as refused:
            client.search()
        assert refused.value.hint
    handler.lies["/v1/filings"] = b'{"items": [], "next": "again"}'
    assert client.search() == []


def test_a_receipt_is_what_was_written(client, owner, key_file):
    given = client.file(key_file, owner.identity)

    assert Receipt.parse(given.receipt.to_json()) == given.receipt
