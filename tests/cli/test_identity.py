from __future__ import annotations

import hashlib
import io
import json
import stat
from pathlib import Path

import pytest

from nsmark.cli.main import main
from nsmark.identity import Identity, PublicKey, SignedClaim, read_claim_file

CREATED = "2026-01-31T12:00:00Z"


@pytest.fixture
def alice(tmp_path, identity) -> Path:
    identity.save(tmp_path / "alice")
    return tmp_path / "alice.pem"


@pytest.fixture(autouse=True)
def no_passphrase_at_hand(monkeypatch):
    monkeypatch.delenv("NSMARK_PASSPHRASE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no terminal to ask at, whoever runs this


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def sign(identity: Path, out: Path, *further: str) -> int:
    words = ["identity", "sign", "--identity", str(identity), "--out", str(out), *further]
    return main(words)


# --- new -----------------------------------------------------------------------------------------


def test_new_writes_a_private_and_a_public_half(tmp_path, capsys):
    assert main(["identity", "new", "--out", str(tmp_path / "bob"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    private, public = tmp_path / "bob.pem", tmp_path / "bob.pub"
    assert (found["private_key"], found["public_key"]) == (str(private), str(public))
    assert (mode(private), mode(public)) == (0o600, 0o644)
    identity = Identity.load(private)
    assert identity.public_key == PublicKey.load(public)
    fingerprint = hashlib.sha256(identity.public_key.raw).hexdigest()
    assert found["fingerprint"] == fingerprint
    assert found["encrypted"] is False


def test_two_new_identities_differ(tmp_path):
    for name in ("a", "b"):
        assert main(["identity", "new", "--out", str(tmp_path / name)]) == 0
    keys = [PublicKey.load(tmp_path / f"{name}.pub") for name in ("a", "b")]
    assert keys[0] != keys[1]


@pytest.mark.parametrize("taken", ["bob.pem", "bob.pub"])
def test_an_existing_identity_is_never_replaced(tmp_path, capsys, taken):
    (tmp_path / taken).write_text("precious", encoding="utf-8")
    assert main(["identity", "new", "--out", str(tmp_path / "bob")]) == 3
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text(encoding="utf-8") == "precious"
    assert "exists already" in capsys.readouterr().err


def test_an_encrypted_identity_needs_its_passphrase(tmp_path, capsys, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_bytes(b"correct horse\r\n")
    new = ["identity", "new", "--out", str(tmp_path / "bob"), "--passphrase-file", str(secret)]
    assert main(new) == 0
    assert b"ENCRYPTED" in (tmp_path / "bob.pem").read_bytes()
    show = ["identity", "show", str(tmp_path / "bob.pem"), "--json"]
    assert main(show) == 2  # no terminal to ask at
    assert main([*show, "--passphrase-file", str(secret)]) == 0
    monkeypatch.setenv("NSMARK_PASSPHRASE", "correct horse")
    assert main(show) == 0
    monkeypatch.setenv("NSMARK_PASSPHRASE", "wrong")
    assert main(show) == 3
    assert "correct horse" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_passphrase_is_wrong_usage(tmp_path, content):
    (tmp_path / "secret").write_bytes(content)
    words = ["identity", "new", "--out", str(tmp_path / "bob")]
    assert main([*words, "--passphrase-file", str(tmp_path / "secret")]) == 2
    assert not (tmp_path / "bob.pem").exists()


def test_encrypting_without_a_passphrase_at_hand_is_wrong_usage(tmp_path, capsys):
    assert main(["identity", "new", "--out", str(tmp_path / "bob"), "--encrypt"]) == 2
    assert "NSMARK_PASSPHRASE" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- show ----------------------------------------------------------------------------------------


def test_both_halves_show_the_same_public_key(alice, capsys):
    shown = []
    for path in (alice, alice.with_suffix(".pub")):
        assert main(["identity", "show", str(path), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert "PRIVATE" not in json.dumps(shown)


# --- sign and check ------------------------------------------------------------------------------


def test_a_signed_claim_checks(alice, tmp_path, capsys):
    claim = tmp_path / "claim.json"
    options = ["--owner", "Zoë", "--message", "mine\nall mine", "--created", CREATED, "--json"]
    assert sign(alice, claim, *options) == 0
    shown = json.loads(capsys.readouterr().out)
    assert mode(claim) == 0o600
    signed = read_claim_file(claim)
    assert isinstance(signed, SignedClaim)
    assert (signed.claim.owner, signed.claim.created) == ("Zoë", CREATED)
    assert signed.signature.hex() not in json.dumps(shown)  # the watermark's secret
    assert shown["signature_sha256"] == hashlib.sha256(signed.signature).hexdigest()
    assert main(["identity", "check", str(claim), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["valid"] is True
    assert checked["claim"] == signed.claim.to_mapping()
    assert signed.signature.hex() not in json.dumps(checked)
    assert main(["identity", "check", str(claim), "--public", str(alice.with_suffix(".pub"))]) == 0


def test_signing_the_same_claim_gives_the_same_signature(alice, tmp_path):
    bare = {"format": "nsmark/claim/1", "message": "m", "owner": "o", "created": CREATED}
    (tmp_path / "bare.json").write_text(json.dumps(bare), encoding="utf-8")
    options = ["--owner", "o", "--message", "m", "--created", CREATED]
    assert sign(alice, tmp_path / "a.json", *options) == 0
    assert sign(alice, tmp_path / "b.json", "--claim", str(tmp_path / "bare.json")) == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_claim_that_was_altered_does_not_check(alice, tmp_path, capsys):
    claim = tmp_path / "claim.json"
    assert sign(alice, claim, "--owner", "o", "--message", "my model") == 0
    claim.write_text(
        claim.read_text(encoding="utf-8").replace("my model", "my house"), encoding="utf-8"
    )
    capsys.readouterr()
    assert main(["identity", "check", str(claim), "--json"]) == 3
    captured = capsys.readouterr()
    assert "valid" not in json.loads(captured.out)
    assert "signature" in captured.err


def test_a_claim_signed_by_another_key_does_not_check(alice, tmp_path):
    assert main(["identity", "new", "--out", str(tmp_path / "bob")]) == 0
    claim = tmp_path / "claim.json"
    assert sign(alice, claim, "--owner", "o", "--message", "m") == 0
    assert main(["identity", "check", str(claim), "--public", str(tmp_path / "bob.pub")]) == 3
    # Nor will another identity sign it as if it were its own.
    assert sign(tmp_path / "bob.pem", tmp_path / "b.json", "--claim", str(claim)) == 3
    assert not (tmp_path / "b.json").exists()


def test_an_unsigned_claim_does_not_check(tmp_path):
    bare = {"format": "nsmark/claim/1", "message": "m", "owner": "o", "created": CREATED}
    (tmp_path / "bare.json").write_text(json.dumps(bare), encoding="utf-8")
    assert main(["identity", "check", str(tmp_path / "bare.json")]) == 3


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 2),
        (["--owner", "o"], 2),
        (["--message", "m"], 2),
        (["--claim", "x.json", "--owner", "o"], 2),
        (["--claim", "missing.json"], 3),
        (["--owner", "", "--message", "m"], 3),
        (["--owner", "o", "--message", "m", "--created", "yesterday"], 3),
        (["--owner", "o", "--message", "m", "--created", "2026-02-30T00:00:00Z"], 3),
    ],
)
def test_a_claim_that_cannot_be_made_writes_nothing(alice, tmp_path, options, status):
    assert sign(alice, tmp_path / "claim.json", *options) == status
    assert not (tmp_path / "claim.json").exists()


def test_an_existing_claim_file_is_never_replaced(alice, tmp_path):
    (tmp_path / "claim.json").write_text("precious", encoding="utf-8")
    assert sign(alice, tmp_path / "claim.json", "--owner", "o", "--message", "m") == 3
    assert (tmp_path / "claim.json").read_text(encoding="utf-8") == "precious"


def test_an_owner_cannot_move_the_readers_cursor(alice, tmp_path, capsys):
    claim = tmp_path / "claim.json"
    assert sign(alice, claim, "--owner", "o\x1b[2Jvalid: nobody\nfake", "--message", "m") == 0
    capsys.readouterr()
    assert main(["identity", "check", str(claim)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("content", [b"", b"no pem", b"-----BEGIN PRIVATE KEY-----\nAA==\n"])
def test_what_is_no_identity_is_refused(tmp_path, content):
    (tmp_path / "bad.pem").write_bytes(content)
    options = ["--owner", "o", "--message", "m"]
    assert sign(tmp_path / "bad.pem", tmp_path / "claim.json", *options) == 3
    assert sign(tmp_path / "none.pem", tmp_path / "claim.json", *options) == 3
