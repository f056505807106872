"""Public keys at the door: raw, in PEM, in a file."""

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nsmark.errors import FileAccessError, IdentityError, InputError
from nsmark.identity import PublicKey

# RFC 8032 §7.1, tests 1 and 2.
RFC_KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
RFC_SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
    "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

IDENTITY_POINT = b"\x01" + bytes(31)
UNSOUND = {
    "identity point": IDENTITY_POINT,
    "order 2": b"\xec" + b"\xff" * 30 + b"\x7f",
    "order 4": bytes(32),
    "order 4, negative": bytes(31) + b"\x80",
    "order 8": bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    "order 8, negative": bytes.fromhex(
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"
    ),
    "order 8, inverse": bytes.fromhex(
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"
    ),
    "order 8, inverse, negative": bytes.fromhex(
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"
    ),
    "identity point with sign": b"\x01" + bytes(30) + b"\x80",
    "order 2 with sign": b"\xec" + b"\xff" * 31,
    "y = p": b"\xed" + b"\xff" * 30 + b"\x7f",
    "y = p + 1": b"\xee" + b"\xff" * 30 + b"\x7f",
    "y = p + 3": b"\xf0" + b"\xff" * 30 + b"\x7f",
    "y = 2^255 - 1": b"\xff" * 31 + b"\x7f",
    "all ones": b"\xff" * 32,
    "not on the curve": b"\x02" + bytes(31),
}
unsound = pytest.mark.parametrize("raw", UNSOUND.values(), ids=UNSOUND)


def spki_pem(raw: bytes, prefix: str = "302a300506032b6570032100") -> str:
    body = base64.b64encode(bytes.fromhex(prefix) + raw).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"


@unsound
def test_unsound_keys_are_refused_raw_and_through_pem(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.pub"
    path.write_text(spki_pem(raw))

    for make in (
        lambda: PublicKey(raw),
        lambda: PublicKey.from_pem(spki_pem(raw)),
        lambda: PublicKey.from_pem(spki_pem(raw).encode()),
        lambda: PublicKey.load(path),
    ):
        with pytest.raises(IdentityError, match="small order or not in canonical form"):
            make()


def test_the_check_is_needed_because_the_library_accepts_the_identity_point() -> None:
    # R = S = 0·B: one signature for every message. If this ever fails, the check may go.
    forged = IDENTITY_POINT + bytes(32)
    key = Ed25519PublicKey.from_public_bytes(IDENTITY_POINT)

    key.verify(forged, b"claim one")
    key.verify(forged, b"claim two")


def test_the_pem_block_is_the_standard_one_and_comes_back() -> None:
    key = PublicKey(RFC_KEY)

    assert key.to_pem() == spki_pem(RFC_KEY)
    assert PublicKey.from_pem(key.to_pem()) == key
    assert PublicKey.from_pem(key.to_pem().replace("\n", "\r\n")) == key
    assert key.fingerprint == hashlib.sha256(RFC_KEY).hexdigest()
    assert key.fingerprint == "21fe31dfa154a261626bf854046fd2271b7bed4b6abe45aa58877ef47f9721b9"


@pytest.mark.parametrize(
    "pem",
    [
        "",
        "no key",
        "\ud800",  # a lone surrogate, as JSON may hold it
        "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n!!!!\n-----END PUBLIC KEY-----\n",
        spki_pem(RFC_KEY[:31]),
        spki_pem(RFC_KEY + b"x"),
        spki_pem(RFC_KEY).replace("PUBLIC", "PRIVATE"),
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_pem_is_refused(pem: str | bytes) -> None:
    with pytest.raises(IdentityError):
        PublicKey.from_pem(pem)


def test_keys_of_other_kinds_are_refused() -> None:
    others = [
        rsa.generate_private_key(65537, 2048).public_key(),
        ec.generate_private_key(ec.SECP256R1()).public_key(),
        x25519.X25519PrivateKey.generate().public_key(),
    ]
    for key in others:
        pem = key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        with pytest.raises(IdentityError, match="not Ed25519"):
            PublicKey.from_pem(pem)


def test_the_signature_of_the_rfc_verifies_and_nothing_else_does() -> None:
    key = PublicKey(RFC_KEY)

    assert key.verifies(RFC_SIGNATURE, b"")
    assert not key.verifies(RFC_SIGNATURE, b"x")
    assert not key.verifies(RFC_SIGNATURE[:-1], b"")
    assert not key.verifies(RFC_SIGNATURE + b"\x00", b"")
    assert not key.verifies(b"", b"")
    for bit in range(0, 512, 7):
        altered = bytearray(RFC_SIGNATURE)
        altered[bit // 8] ^= 1 << bit % 8
        assert not key.verifies(bytes(altered), b"")


def test_a_signature_has_no_second_spelling() -> None:
    # S + L would satisfy the equation too: accepting it gives one claim two payloads.
    scalar = int.from_bytes(RFC_SIGNATURE[32:], "little") + GROUP_ORDER
    malleated = RFC_SIGNATURE[:32] + scalar.to_bytes(32, "little")

    assert not PublicKey(RFC_KEY).verifies(malleated, b"")


def test_equal_keys_are_equal_and_a_key_cannot_be_changed() -> None:
    key = PublicKey(RFC_KEY)

    assert {key, PublicKey(bytes(RFC_KEY))} == {key}
    with pytest.raises(AttributeError):
        key.raw = bytes(32)


def test_files_that_are_missing_or_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="public key"):
        PublicKey.load(tmp_path / "missing.pub")
    large = tmp_path / "large.pub"
    large.write_text(spki_pem(RFC_KEY) + "\n" * 16 * 1024)
    with pytest.raises(InputError, match="larger"):
        PublicKey.load(large)
