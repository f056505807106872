from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from authority_world import KeyOwner, admit
from nsmark.errors import EvidenceError, FileAccessError, InputError, ModelError, UsageError
from nsmark.suspects import save_recorded
from nsmark_authority.client.content import read_content, read_suspect
from nsmark_authority.client.multipart import FilePart, multipart_body
from nsmark_authority.client.offline import explain, keep_receipt, receipt_path, statement_of
from nsmark_authority.client.tokens import KeptToken, TokenStore, read_token_file
from nsmark_authority.manifest import Manifest
from nsmark_authority.receipt import check_receipt
from nsmark_authority.service import Authority
from nsmark_authority.statements import Filing

URL = "https://authority.example"


# --- What receipts prove. ---


def test_a_local_time_stamp_is_never_called_a_proof_of_time(authority: Authority, owner: KeyOwner):
    checked = check_receipt(owner.file(authority), authority.public_key, authority.roots)

    explained = explain(checked, is_key_trusted=True, content="owner.nsmark")

    assert any("owner.nsmark is the very content" in each for each in explained.proven)
    assert any("entry 1 of the log of authority.example" in each for each in explained.proven)
    assert not any("at the latest" in each for each in explained.proven)
    assert any("local time-stamp key" in each for each in explained.unproven)


def test_a_key_that_came_with_the_receipt_proves_no_authority(
    authority: Authority, owner: KeyOwner
):
    receipt = owner.file(authority)
    checked = check_receipt(receipt, receipt.public_key)

    explained = explain(checked, is_key_trusted=False)

    assert not any("log of" in each for each in explained.proven)
    assert any("came with the receipt itself" in each for each in explained.unproven)
    assert any("none was compared" in each for each in explained.unproven)


def test_every_kind_of_statement_is_put_into_words(authority: Authority, owner: KeyOwner):
    filed = owner.file(authority)
    opened = [admit(authority, filed.entry_id), authority.open_dispute(owner.dispute())]
    texts = authority.publish("word_list", "words", b"one\ntwo\n")
    for receipt, words in zip(
        (filed, *opened, texts),
        ("filed the watermark key", "admitted the", "opened a dispute", "published 'words'"),
        strict=True,
    ):
        checked = check_receipt(receipt, authority.public_key, authority.roots)
        assert words in explain(checked, is_key_trusted=True).proven[0]
    assert isinstance(statement_of(filed), Filing)


def test_checking_a_receipt_first_does_not_keep_a_process_from_stamping(
    authority: Authority, owner: KeyOwner, tmp_path: Path
):
    """The ASN.1 package fixes the names it knows at its first use."""
    path = tmp_path / "some.receipt"
    keep_receipt(path, owner.file(authority))
    program = """
import sys
from pathlib import Path
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token
receipt = Receipt.load(Path(sys.argv[1]))
check_receipt(receipt, receipt.public_key)
stamps = LocalAuthority.create(Path(sys.argv[2]))
print(len(extract_token(stamps.answer(build_request(bytes(32)).der))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(tmp_path / "stamps")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


def test_receipts_are_kept_beside_their_file_and_never_lost(authority: Authority, owner: KeyOwner):
    folder = authority.settings.folder.parent
    key = folder / "owner.nsmark"
    path = receipt_path(key)
    first = owner.file(authority)

    assert path.name == "owner.nsmark.receipt"
    assert keep_receipt(path, first) is None
    assert keep_receipt(path, first) is None
    owner.file(authority, 1)
    fresh = authority.log.receipt(first.entry_id)
    kept = keep_receipt(path, fresh)
    again = keep_receipt(path, first)

    assert kept is not None
    assert again is not None
    assert [p.read_bytes() for p in (path, kept, again)] == [
        first.to_json(),
        first.to_json(),
        fresh.to_json(),
    ]


# --- What is handed over. ---


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "outputs.safetensors"
    save_recorded(path, np.ones((3, 2)), np.zeros((3, 2)))
    return path


def test_a_folder_is_named_by_what_is_handed_over(tmp_path, recorded):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(recorded.read_bytes())
    alone = Manifest.of_folder(folder)
    (folder / "README.md").write_text("a card")
    (folder / "weights.bin").write_bytes(b"pickle")
    (folder / ".hidden").write_text("")

    content = read_content(folder)

    assert (content.what, content.sha256) == ("model", alone.digest)
    assert [part.name for part in content.parts] == ["config.json", "model.safetensors"]
    assert content.num_bytes == alone.total_bytes
    suspect, same = read_suspect(f"hf:{folder}")
    assert (suspect.kind, suspect.content_sha256, same) == ("model", alone.digest, content)


def test_what_an_authority_cannot_measure_is_refused(tmp_path, recorded):
    np.savez(tmp_path / "outputs.npz", triggered=np.ones(3), untriggered=np.ones(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")

    with pytest.raises(EvidenceError, match="safetensors"):
        read_content(tmp_path / "outputs.npz")
    with pytest.raises(ModelError, match="no weights"):
        read_content(tmp_path / "empty")
    with pytest.raises(FileAccessError):
        read_content(tmp_path / "absent.safetensors")
    for text in (f"recorded:{tmp_path}", f"hf:{recorded}", "nowhere", "onnx:x", "openai:ftp://x#m"):
        with pytest.raises(UsageError):
            read_suspect(text)


def test_endpoints_are_named_as_verify_names_them():
    suspect, content = read_suspect("completions:https://api.example/v1#model-1")

    assert content is None
    assert (suspect.interface, suspect.url, suspect.model) == (
        "completions",
        "https://api.example/v1",
        "model-1",
    )


def test_a_form_has_the_length_it_says(recorded):
    size = recorded.stat().st_size
    parts = [FilePart("files", "a/b.safetensors", recorded, size), FilePart("files", "c", b"x", 1)]

    body = multipart_body(b"{}", parts)
    content = b"".join(body.chunks())

    assert len(content) == body.num_bytes
    assert content.count(recorded.read_bytes()) == 1
    assert b"".join(body.chunks()) == content  # may be sent again


@pytest.mark.parametrize("change", [b"", b"longer than it was"])
def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path, change):
    path = tmp_path / "file"
    path.write_bytes(b"as it was")
    body = multipart_body(b"{}", [FilePart("files", "file", path, 9)])
    path.write_bytes(change)

    with pytest.raises(FileAccessError, match="was changed"):
        b"".join(body.chunks())


# --- Tokens. ---


def kept(number: int = 0, url: str = URL, *, token: str = "nsm_secret") -> KeptToken:  # noqa: S107
    return KeptToken(
        url=url, fingerprint=f"{number:064x}", token=token, expires="2027-01-01T00:00:00Z"
    )


def test_tokens_are_for_their_owner_alone(tmp_path):
    store = TokenStore(tmp_path / "nsmark" / "tokens.json")
    assert store.find(URL, None) is None
    store.keep(kept())
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert "nsm_secret" not in repr(store.tokens())

    store.path.chmod(0o644)
    with pytest.raises(FileAccessError, match="others can read"):
        store.tokens()


def test_the_token_of_the_right_owner_and_authority_is_found(tmp_path):
    store = TokenStore(tmp_path / "tokens.json")
    store.keep(kept(1, token="first"))
    store.keep(kept(1, token="second"))
    store.keep(kept(2, token="other"))
    store.keep(kept(1, "https://elsewhere.example", token="elsewhere"))

    assert store.find(URL, f"{1:064x}") == "second"
    assert store.find(URL, f"{2:064x}") == "other"
    assert store.find(URL, None) is None  # which of the two?
    assert store.find("https://elsewhere.example", None) == "elsewhere"


def test_a_token_file_holds_a_token_and_nothing_else(tmp_path):
    path = tmp_path / "token"
    path.write_text("nsm_0123\n")
    path.chmod(0o640)
    with pytest.raises(FileAccessError, match="others can read"):
        read_token_file(path)
    path.chmod(0o600)
    assert read_token_file(path) == "nsm_0123"
    path.write_bytes(b"\xff")
    with pytest.raises(InputError):
        read_token_file(path)
    (tmp_path / "bad.json").write_text('{"format": "nsmark/tokens/2", "tokens": []}')
    os.chmod(tmp_path / "bad.json", 0o600)
    with pytest.raises(InputError):
        TokenStore(tmp_path / "bad.json").tokens()
