"""Signed claims: whatever is altered is refused, and nothing is accepted twice."""

import base64
import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import ClaimError, FileAccessError, IdentityError, InputError
from nsmark.identity import (
    Identity,
    OwnershipClaim,
    SignedClaim,
    read_claim_file,
    write_claim_file,
)
from nsmark.identity.signing import parse_hex

CREATED = "2026-01-31T12:00:00Z"
ALICE = Identity(Ed25519PrivateKey.from_private_bytes(b"a" * 32))
BOB = Identity(Ed25519PrivateKey.from_private_bytes(b"b" * 32))
CLAIM = OwnershipClaim.make("Alice", "encoder-small is mine", CREATED)
SIGNED = ALICE.sign(CLAIM)


def rewritten(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_claim_signed_with_the_key_is_accepted_and_signing_is_deterministic() -> None:
    assert len(SIGNED.signature) == 64
    assert ALICE.sign(CLAIM) == SIGNED
    assert SignedClaim.from_mapping(SIGNED.to_mapping()) == SIGNED
    assert SIGNED.signature_digest == hashlib.sha256(SIGNED.signature).hexdigest()


@pytest.mark.parametrize(
    "claim",
    [
        OwnershipClaim.make("Alicf", CLAIM.message, CREATED),
        OwnershipClaim.make("Alice ", CLAIM.message, CREATED),
        OwnershipClaim.make("Alice", CLAIM.message + ".", CREATED),
        OwnershipClaim.make("Alice", CLAIM.message, "2026-01-31T12:00:01Z"),
        OwnershipClaim.make(CLAIM.message, "Alice", CREATED),
    ],
)
def test_an_altered_claim_is_refused(claim: OwnershipClaim) -> None:
    with pytest.raises(ClaimError, match="does not fit"):
        SignedClaim(claim=claim, public_key=SIGNED.public_key, signature=SIGNED.signature)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 511))
def test_a_signature_with_any_bit_flipped_is_refused(bit: int) -> None:
    altered = bytearray(SIGNED.signature)
    altered[bit // 8] ^= 1 << bit % 8

    with pytest.raises(ClaimError, match="does not fit"):
        SignedClaim(claim=CLAIM, public_key=SIGNED.public_key, signature=bytes(altered))


@pytest.mark.parametrize("signature", [b"", SIGNED.signature[:63], SIGNED.signature + b"\x00"])
def test_a_signature_of_another_length_is_refused(signature: bytes) -> None:
    with pytest.raises(ClaimError, match="does not fit"):
        SignedClaim(claim=CLAIM, public_key=SIGNED.public_key, signature=signature)


def test_anothers_key_or_signature_is_refused() -> None:
    for key, signature in (
        (BOB.public_key, SIGNED.signature),
        (ALICE.public_key, BOB.sign(CLAIM).signature),
    ):
        with pytest.raises(ClaimError, match="does not fit"):
            SignedClaim(claim=CLAIM, public_key=key, signature=signature)


def test_the_forgery_under_the_identity_point_is_refused() -> None:
    # Under this key the one signature R = identity, S = 0 fits every claim.
    point = b"\x01" + bytes(31)
    body = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + point).decode()
    for message in ("this model is mine", "and that one too"):
        with pytest.raises(IdentityError, match="small order"):
            SignedClaim.from_mapping(
                {
                    "claim": OwnershipClaim.make("Mallory", message, CREATED).to_mapping(),
                    "public_key": (
                        f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"
                    ),
                    "signature": (point + bytes(32)).hex(),
                }
            )


@pytest.mark.parametrize(
    "change",
    [
        {"signature": None},
        {"signature": 5},
        {"signature": SIGNED.signature.hex().upper()},
        {"signature": " " + SIGNED.signature.hex()},
        {"signature": SIGNED.signature.hex(" ")},
        {"signature": SIGNED.signature.hex()[:-1]},
        {"signature": SIGNED.signature.hex()[:-2]},
        {"signature": "zz" * 64},
        {"signature": "\ud800"},
        {"public_key": None},
        {"public_key": ""},
        {"public_key": "\ud800"},
        {"claim": None},
        {"claim": []},
        {"claim": {**CLAIM.to_mapping(), "owner": "Bob"}},
        {"claim": {**CLAIM.to_mapping(), "format": "nsmark/claim/2"}},
        {"extra": 1},
    ],
)
def test_a_malformed_signed_claim_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((ClaimError, IdentityError)):
        SignedClaim.from_mapping({**SIGNED.to_mapping(), **change})


@pytest.mark.parametrize("name", ["claim", "public_key", "signature"])
def test_a_missing_part_is_refused(name: str) -> None:
    document = SIGNED.to_mapping()
    del document[name]

    with pytest.raises(ClaimError, match="exactly the fields"):
        SignedClaim.from_mapping(document)


def test_hex_has_one_spelling() -> None:
    assert parse_hex("00ff") == b"\x00\xff"
    for other in ("00FF", "00 ff", "0ff", "0x00ff", "gg", "\u0660\u0660"):
        with pytest.raises(ClaimError):
            parse_hex(other)


def test_the_public_form_holds_the_digest_of_the_signature_and_not_the_signature() -> None:
    shown = json.dumps(SIGNED.public_form())

    assert SIGNED.public_form()["claim"] == CLAIM.to_mapping()
    assert SIGNED.signature_digest in shown
    assert SIGNED.signature.hex() not in shown


def test_printing_a_signed_claim_does_not_show_the_signature() -> None:
    # The trigger follows from it, and records end up in logs.
    for shown in (repr(SIGNED), str(SIGNED), f"{SIGNED}"):
        assert SIGNED.signature.hex() not in shown
        assert repr(SIGNED.signature)[2:20] not in shown


# Claim files --------------------------------------------------------------------------------


def test_a_claim_file_comes_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"

    write_claim_file(SIGNED, path)

    assert read_claim_file(path) == SIGNED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_claim_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    path.write_text("precious")

    with pytest.raises(FileAccessError, match="exists already"):
        write_claim_file(SIGNED, path)

    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("character", ["\x01", "\U0001f600", "\u2028", '"'])
def test_the_longest_claim_fits_into_a_claim_file(tmp_path: Path, character: str) -> None:
    signed = ALICE.sign(OwnershipClaim.make(character * 256, character * 16_384, CREATED))

    write_claim_file(signed, tmp_path / "claim.json")

    assert read_claim_file(tmp_path / "claim.json") == signed


def test_a_bare_claim_is_read_as_one_still_to_be_signed(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "claim.json", CLAIM.to_mapping())

    assert read_claim_file(path) == CLAIM


def test_an_altered_claim_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    document = SIGNED.to_mapping()
    document["claim"]["owner"] = "Mallory"

    with pytest.raises(ClaimError, match="does not fit"):
        read_claim_file(rewritten(path, document))


def test_a_claim_file_that_names_its_owner_twice_is_refused(tmp_path: Path) -> None:
    # A reader that keeps the first and one that keeps the last would see two claims.
    path = tmp_path / "claim.json"
    text = json.dumps(SIGNED.to_mapping())
    path.write_text(text.replace('"owner":', '"owner": "Mallory", "owner":'))

    with pytest.raises(InputError, match="twice"):
        read_claim_file(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"owner": "a"}', "not json", "\ufeff{}"])
def test_what_is_no_claim_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "claim.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError):
        read_claim_file(path)


def test_a_claim_file_beyond_its_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    path.write_text(json.dumps(SIGNED.to_mapping()) + " " * 128 * 1024)

    with pytest.raises(InputError, match="larger"):
        read_claim_file(path)
    with pytest.raises(FileAccessError):
        read_claim_file(tmp_path / "missing.json")
