"""Receipts: checked offline, and nothing in one can be changed."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority_world import KeyOwner, make_authority
from handmade_keys import make_identity
from nsmark.errors import NsmarkError
from nsmark_authority.errors import TransparencyError
from nsmark_authority.receipt import MAX_RECEIPT_BYTES, Receipt, check_receipt
from nsmark_authority.service import Authority
from nsmark_authority.statements import Filing
from nsmark_authority.transparency.local_authority import LocalAuthority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    opened = make_authority(tmp_path_factory.mktemp("receipts"))
    KeyOwner(1).register(opened)
    for number in range(6):
        KeyOwner(1).file(opened, number)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def receipt(authority: Authority) -> Receipt:
    return authority.log.receipt(3)


@pytest.fixture(scope="module")
def other(authority: Authority) -> Receipt:
    return authority.log.receipt(4)


def test_a_receipt_says_what_was_filed_and_when(authority: Authority, receipt: Receipt) -> None:
    _, content = KeyOwner(1).filing(2)

    checked = check_receipt(
        Receipt.parse(receipt.to_json()),
        authority.public_key,
        authority.roots,
        content_sha256=hashlib.sha256(content).hexdigest(),
    )

    assert isinstance(checked.statement, Filing)
    assert checked.statement.content_sha256 == hashlib.sha256(content).hexdigest()
    assert (checked.index, checked.tree_size) == (3, 7)
    assert checked.entry_id == receipt.entry_id
    assert checked.is_local_time
    assert checked.are_roots_trusted
    assert abs(checked.time.timestamp() - time.time()) < 3600


def test_it_has_one_form_and_can_be_kept_in_a_file(receipt: Receipt, tmp_path: Path) -> None:
    path = tmp_path / "owner.nsmark.receipt"
    path.write_bytes(receipt.to_json())

    assert Receipt.load(path) == receipt
    assert Receipt.load(path).to_json() == receipt.to_json()
    assert json.loads(receipt.to_json())["format"] == "nsmark/receipt/1"


def test_without_roots_the_time_is_marked(authority: Authority, receipt: Receipt) -> None:
    assert not check_receipt(receipt, authority.public_key).are_roots_trusted


def test_another_file_is_not_what_was_filed(authority: Authority, receipt: Receipt) -> None:
    with pytest.raises(TransparencyError, match="another file"):
        check_receipt(receipt, authority.public_key, authority.roots, content_sha256="00" * 32)


def test_another_key_is_not_the_authority_s(authority: Authority, receipt: Receipt) -> None:
    stranger = make_identity(8).public_key

    with pytest.raises(TransparencyError, match="another authority key"):
        check_receipt(receipt, stranger, authority.roots)
    with pytest.raises(TransparencyError, match="has no signature"):
        check_receipt(replace(receipt, public_key=stranger), stranger, authority.roots)


def test_other_roots_do_not_vouch(authority: Authority, receipt: Receipt, tmp_path: Path) -> None:
    roots = [LocalAuthority.create(tmp_path / "other").root]

    with pytest.raises(TransparencyError, match="chain of certificates"):
        check_receipt(receipt, authority.public_key, roots)


def _swap(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(members: dict[str, Any], others: dict[str, Any]) -> None:
        assert members[name] != others[name]
        members[name] = others[name]

    return change


def _note_line(number: int, text: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(members: dict[str, Any], others: dict[str, Any]) -> None:
        lines = members["checkpoint"].split("\n")
        assert lines[number] != text
        lines[number] = text
        members["checkpoint"] = "\n".join(lines)

    return change


def _set(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(members: dict[str, Any], others: dict[str, Any]) -> None:
        assert members[name] != value
        members[name] = value

    return change


CHANGES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], None], str]] = {
    "entry of another": (_swap("entry"), "inclusion proof"),
    "index of another": (_swap("index"), "inclusion proof"),
    "index beyond the tree": (_set("index", 7), "no leaf"),
    "proof of another": (_swap("proof"), "inclusion proof"),
    "proof too short": (lambda m, o: m["proof"].pop(), "too short"),
    "proof too long": (lambda m, o: m["proof"].append(m["proof"][0]), "too long"),
    "proof of odd hashes": (_set("proof", ["AAAA"]), "32 bytes"),
    "token of another": (_swap("token"), "another"),
    "token cut off": (lambda m, o: m.update(token=m["token"][:400]), "token"),
    "time said to be independent": (_set("local_time", False), "independent"),
    "name of another authority": (_set("authority", "other.example"), "made to"),
    "size of the log": (_note_line(1, "8"), "does not fit the checkpoint"),
    "root of the log": (
        _note_line(2, base64.b64encode(bytes(32)).decode()),
        "does not fit the checkpoint",
    ),
    "origin of the log": (_note_line(0, "other.example"), "does not fit"),
    "no roots": (_set("roots", []), "roots"),
    "roots that are none": (_set("roots", ["x"]), "no certificate"),
    "format": (_set("format", "nsmark/receipt/2"), "unknown"),
    "unknown member": (lambda m, o: m.update(more=1), "more"),
    "missing member": (lambda m, o: m.pop("proof"), "no member proof"),
    "wrong type": (_set("index", "3"), "index"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_part_is_needed(
    authority: Authority, receipt: Receipt, other: Receipt, change: str
) -> None:
    members, others = json.loads(receipt.to_json()), json.loads(other.to_json())
    alter, reason = CHANGES[change]
    alter(members, others)

    with pytest.raises(TransparencyError, match=reason):
        check_receipt(
            Receipt.parse(json.dumps(members).encode()), authority.public_key, authority.roots
        )


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_no_byte_can_be_changed(
    authority: Authority, receipt: Receipt, data: st.DataObject
) -> None:
    """One flipped bit anywhere in what is proved; roots were brought by the checker."""
    name = data.draw(st.sampled_from(["entry", "checkpoint", "token", "proof"]))
    value = getattr(receipt, name)
    content = bytearray(value if isinstance(value, bytes) else b"".join(value))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    changed: Any = bytes(content)
    if name == "proof":
        changed = tuple(changed[start : start + 32] for start in range(0, len(changed), 32))

    with pytest.raises(TransparencyError):
        check_receipt(replace(receipt, **{name: changed}), authority.public_key, authority.roots)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_says_the_same(
    authority: Authority, receipt: Receipt, data: st.DataObject
) -> None:
    content = bytearray(receipt.to_json())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255).filter(lambda octet: octet != content[place]))

    try:
        checked = check_receipt(
            Receipt.parse(bytes(content)), authority.public_key, authority.roots
        )
    except NsmarkError:
        return
    # Only what the checker brought himself may have been touched.
    assert checked.opened.entry == receipt.entry
    assert (checked.index, checked.tree_size) == (3, 7)


def test_a_huge_receipt_is_not_read() -> None:
    with pytest.raises(TransparencyError, match="larger"):
        Receipt.parse(b" " * (MAX_RECEIPT_BYTES + 1))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_no_receipt(octets: bytes) -> None:
    with pytest.raises(TransparencyError):
        Receipt.parse(octets)


def test_receipts_are_checked_fast(authority: Authority, receipt: Receipt) -> None:
    content = receipt.to_json()
    begin = time.process_time()
    for _ in range(40):
        check_receipt(Receipt.parse(content), authority.public_key, authority.roots)

    assert 40 / (time.process_time() - begin) > 100  # 500 and more on an idle core
