"""Signing keys on disk: modes, passphrases, and never replacing one."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nsmark.errors import ConfigError, FileAccessError, IdentityError, InputError
from nsmark.identity import Identity, OwnershipClaim, PublicKey

RFC_SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
CLAIM = OwnershipClaim(
    owner="Example Lab", message="encoder-small is ours", created="2026-01-31T12:00:00Z"
)


def rfc_identity() -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(RFC_SECRET))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_golden_key_and_signature_of_rfc_8032() -> None:
    identity = rfc_identity()

    assert identity.public_key.raw.hex() == RFC_PUBLIC
    assert identity.sign_bytes(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def test_golden_signature_of_a_claim() -> None:
    # Signed apart from nsmark, over the canonical bytes written out as a literal.
    assert rfc_identity().sign(CLAIM).signature.hex() == (
        "345024f0c95fcc4498404b9cfb2c34dc0cf5fe92fd89276864207c37b36494aa"
        "34cab5adafc47c999e4a7e31c699016c206fb09deffb20ecf759fc2d4ef51203"
    )


def test_generated_identities_differ() -> None:
    keys = {Identity.generate().public_key.raw for _ in range(5)}

    assert len(keys) == 5


@pytest.mark.parametrize("passphrase", [None, b"p", "naïve phrase".encode(), b"x" * 1023])
def test_an_identity_comes_back_from_its_files(tmp_path: Path, passphrase: bytes | None) -> None:
    identity = Identity.generate()

    private, public = identity.save(tmp_path / "alice", passphrase)

    assert (private.name, public.name) == ("alice.pem", "alice.pub")
    assert Identity.load(private, passphrase).sign_bytes(b"m") == identity.sign_bytes(b"m")
    assert PublicKey.load(public) == identity.public_key
    assert Identity.is_encrypted(private) == (passphrase is not None)


def test_the_files_are_standard_pkcs8_and_spki_pem(tmp_path: Path) -> None:
    private, public = rfc_identity().save(tmp_path / "alice")

    key = serialization.load_pem_private_key(private.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert key.private_bytes_raw() == RFC_SECRET
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert public.read_text().startswith("-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.parametrize("passphrase", [None, b"secret"])
def test_only_the_owner_may_read_the_private_key(tmp_path: Path, passphrase: bytes | None) -> None:
    private, public = Identity.generate().save(tmp_path / "alice", passphrase)

    assert mode(private) == 0o600
    assert mode(public) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.pem", "alice.pub"]


def test_a_passphrase_keeps_the_secret_out_of_the_file(tmp_path: Path) -> None:
    private, _ = rfc_identity().save(tmp_path / "alice", b"secret")

    assert private.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(TypeError):
        serialization.load_pem_private_key(private.read_bytes(), None)


def test_a_wrong_passphrase_is_refused(tmp_path: Path) -> None:
    private, _ = Identity.generate().save(tmp_path / "alice", b"right")

    for wrong in (b"wrong", b"right ", b"Right", b"x" * 5000):
        with pytest.raises(IdentityError, match="passphrase is wrong"):
            Identity.load(private, wrong)


@pytest.mark.parametrize("passphrase", [None, b""])
def test_a_missing_passphrase_is_named(tmp_path: Path, passphrase: bytes | None) -> None:
    private, _ = Identity.generate().save(tmp_path / "alice", b"right")

    with pytest.raises(IdentityError, match=r"\.pem is encrypted") as caught:
        Identity.load(private, passphrase)
    assert "NSMARK_PASSPHRASE" in caught.value.hint


def test_a_passphrase_for_an_open_key_is_named(tmp_path: Path) -> None:
    private, _ = Identity.generate().save(tmp_path / "alice")

    with pytest.raises(IdentityError, match="is not encrypted"):
        Identity.load(private, b"secret")


@pytest.mark.parametrize(("passphrase", "words"), [(b"", "empty"), (b"x" * 1024, "1024 bytes")])
def test_a_passphrase_that_cannot_be_used_is_refused_before_anything_is_written(
    tmp_path: Path, passphrase: bytes, words: str
) -> None:
    with pytest.raises(IdentityError, match=words):
        Identity.generate().save(tmp_path / "alice", passphrase)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".pem", ".pub"])
def test_neither_file_is_ever_replaced(tmp_path: Path, suffix: str) -> None:
    taken = tmp_path / ("alice" + suffix)
    taken.write_bytes(b"precious")

    with pytest.raises(FileAccessError, match="exists already"):
        Identity.generate().save(tmp_path / "alice")

    assert [path.name for path in tmp_path.iterdir()] == [taken.name]
    assert taken.read_bytes() == b"precious"


def test_a_prefix_with_a_dot_keeps_it(tmp_path: Path) -> None:
    private, public = Identity.generate().save(tmp_path / "alice.v2")

    assert (private.name, public.name) == ("alice.v2.pem", "alice.v2.pub")


def test_missing_folders_are_made(tmp_path: Path) -> None:
    private, _ = Identity.generate().save(tmp_path / "a" / "b" / "alice")

    assert private.is_file()


@pytest.mark.parametrize("prefix", [".", "/", ""])
def test_a_prefix_without_a_name_is_wrong_usage(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        Identity.generate().save(Path(prefix))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    for prefix in (tmp_path / "file" / "alice", tmp_path / ("x" * 300)):
        with pytest.raises(FileAccessError):
            Identity.generate().save(prefix)


def test_files_that_are_no_identity_are_refused(tmp_path: Path) -> None:
    private, public = Identity.generate().save(tmp_path / "alice")
    garbage = tmp_path / "garbage.pem"
    for content in (
        b"",
        b"garbage",
        public.read_bytes(),
        private.read_bytes()[:60],
        private.read_bytes().replace(b"M", b"!"),
    ):
        garbage.write_bytes(content)
        with pytest.raises(IdentityError):
            Identity.load(garbage)
    garbage.write_bytes(private.read_bytes() + b"\n" * 20_000)
    with pytest.raises(InputError, match="larger"):
        Identity.load(garbage)
    with pytest.raises(FileAccessError):
        Identity.load(tmp_path / "missing.pem")
    with pytest.raises(FileAccessError):
        Identity.load(tmp_path)


def test_a_private_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ec.pem"
    path.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )

    with pytest.raises(IdentityError, match="not Ed25519"):
        Identity.load(path)


def test_nothing_printed_shows_the_secret() -> None:
    assert RFC_SECRET.hex() not in repr(rfc_identity())
    assert "private" not in repr(rfc_identity()).lower()
