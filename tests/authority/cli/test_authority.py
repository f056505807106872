"""``nsmark authority``: what operators do, beside the real server."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="needs the authority extra")
pytest.importorskip("fastapi", reason="needs the authority extra")

from authority_server import file_key, running_authority
from authority_world import NAME, KeyOwner, make_authority
from nsmark.cli.main import main
from nsmark.core.texts import lines_digest
from nsmark_authority.errors import AccessDeniedError
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.service import open_authority
from nsmark_authority.settings import AuthoritySettings


@pytest.fixture(autouse=True)
def no_passphrase_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSMARK_BACKUP_PASSPHRASE", raising=False)
    monkeypatch.delenv("NSMARK_DATABASE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no terminal to ask at, whoever runs this


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority's, with one owner and one key."""
    authority = make_authority(tmp_path)
    KeyOwner(1).register(authority)
    KeyOwner(1).file(authority)
    authority.close()
    return tmp_path / "authority"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"correct horse\r\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> Any:
    """Run ``nsmark authority … --json`` and return its document."""
    assert main(["authority", *map(str, words), "--json"]) == status
    return json.loads(capsys.readouterr().out)


# --- backup, restore, check ----------------------------------------------------------------------


def test_a_backup_of_a_running_authority_is_restored(
    tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protected = ("--passphrase-file", secret)
    with running_authority(tmp_path / "old") as server:
        owner = KeyOwner(1, server.name)
        token = server.register(owner)
        with server.client(token) as client:
            receipt = Receipt.parse(file_key(client, *owner.filing(1)).content)
            note = client.get("/v1/log/checkpoint").text
            path = tmp_path / "a.backup"
            written = run(capsys, "backup", "--folder", server.folder, "--out", path, *protected)
            assert written["checkpoint"] == note
            assert written["num_entries"] == receipt.index + 1
            assert written["encrypted"] is True
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert run(capsys, "check", "--folder", server.folder)["is_sound"] is True

    new = tmp_path / "new" / "authority"
    restored = run(capsys, "restore", path, "--folder", new, *protected)
    assert restored["checkpoint"] == note
    assert run(capsys, "check", "--folder", new)["problems"] == []
    with running_authority(tmp_path / "new") as server, server.client(token) as client:
        again = file_key(client, *owner.filing(1))
        assert Receipt.parse(again.content) == receipt
        later = Receipt.parse(file_key(client, *owner.filing(2)).content)
        assert later.index == receipt.index + 1
        assert later.public_key == receipt.public_key


def test_what_is_printed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("NSMARK_BACKUP_PASSPHRASE", "correct horse")
    path = tmp_path / "a.backup"
    assert main(["authority", "backup", "--folder", str(folder), "--out", str(path)]) == 0
    captured = capsys.readouterr()
    assert f"back-up     {path}" in captured.out
    assert "checkpoint  2 entries, root " in captured.out
    assert captured.err == ""

    new = tmp_path / "new"
    assert main(["authority", "restore", str(path), "--folder", str(new)]) == 0
    assert "tokens revoked after the back-up are good again" in capsys.readouterr().out
    assert main(["authority", "check", "--folder", str(new)]) == 0
    assert "everything is as it must be" in capsys.readouterr().out

    plain = [
        "authority",
        "backup",
        "--folder",
        str(folder),
        "--out",
        str(tmp_path / "p"),
        "--plain",
    ]
    assert main(plain) == 0
    assert "not encrypted" in capsys.readouterr().err
    monkeypatch.delenv("NSMARK_BACKUP_PASSPHRASE")
    assert main(["authority", "restore", str(tmp_path / "p"), "--folder", str(tmp_path / "q")]) == 0


def test_a_backup_needs_a_passphrase_or_the_word_plain(
    tmp_path: Path, folder: Path, secret: Path, capsys: Any
) -> None:
    backup = ["backup", "--folder", folder, "--out", tmp_path / "a.backup"]
    assert "needs a passphrase" in run(capsys, *backup, status=2)["error"]
    assert run(capsys, *backup, "--plain", "--passphrase-file", secret, status=2)["error"]
    assert not (tmp_path / "a.backup").exists()
    run(capsys, *backup, "--passphrase-file", secret)
    restore = ["restore", tmp_path / "a.backup", "--folder", tmp_path / "new"]
    assert "needs a passphrase" in run(capsys, *restore, status=2)["error"]
    secret.write_bytes(b"wrong")
    error = run(capsys, *restore, "--passphrase-file", secret, status=3)["error"]
    assert "passphrase is wrong" in error
    assert "exists already" in run(capsys, *backup, "--plain", status=3)["error"]
    assert not (tmp_path / "new").exists()


def test_check_lists_what_is_wrong_and_exits_with_one(folder: Path, capsys: Any) -> None:
    (sealed,) = (path for path in (folder / "content").rglob("*") if path.is_file())
    sealed.write_bytes(sealed.read_bytes()[:-1] + b"x")

    found = run(capsys, "check", "--folder", folder, status=1)

    assert found["is_sound"] is False
    (problem,) = found["problems"]
    assert sealed.name[:16] in problem
    assert main(["authority", "check", "--folder", str(folder)]) == 1
    assert f"problem     {problem}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["backup", "--out", "a.backup", "--plain"],
        ["check"],
        ["rebuild"],
        ["tokens", "list"],
        ["tokens", "issue", "--scope", "admin"],
        ["tokens", "revoke", "0123456789abcdef"],
        ["publish", "pool", "words.txt", "--name", "x"],
    ],
)
def test_no_authority_is_made_where_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("a\n")
    error = run(capsys, *words, "--folder", tmp_path / "none", status=3)["error"]
    assert "there is no authority in" in error
    assert [path.name for path in tmp_path.iterdir()] == ["words.txt"]


@pytest.mark.parametrize("content", [b"", b"nsmark/backup/1", b"garbage" * 100])
def test_what_is_no_backup_is_two_lines(tmp_path: Path, capsys: Any, content: bytes) -> None:
    path = tmp_path / "a.backup"
    for words in ([str(path)], [str(tmp_path)]):
        path.write_bytes(content)
        status = main(["authority", "restore", *words, "--folder", str(tmp_path / "new")])
        assert status in (2, 3)
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith("error: ")
        assert hint.startswith("hint: ")
    assert [p.name for p in tmp_path.iterdir()] == ["a.backup"]


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_are_made_shown_once_listed_and_revoked(folder: Path, capsys: Any) -> None:
    where = ("--folder", folder)
    made = run(
        capsys, "tokens", "issue", *where, "--scope", "admin", "--label", "night", "--days", "2"
    )
    authority = open_authority(AuthoritySettings(folder=folder))
    account = authority.accounts.authenticate(made["token"], "admin")
    assert (account.scopes, account.label, account.fingerprint) == (("admin",), "night", None)

    listed = run(capsys, "tokens", "list", *where)["tokens"]
    assert {token["label"] for token in listed} == {"night", "Owner 1"}  # made in one second
    assert made["token"] not in json.dumps(listed)
    owner = KeyOwner(1).fingerprint
    assert len(run(capsys, "tokens", "list", *where, "--owner", owner)["tokens"]) == 1

    revoked = run(capsys, "tokens", "revoke", made["token_id"], *where)
    assert revoked["revoked"] is not None
    with pytest.raises(AccessDeniedError, match="revoked"):
        authority.accounts.authenticate(made["token"], "admin")
    assert [event.outcome for event in authority.accounts.events(limit=2)] == ["revoked", "made"]
    authority.close()
    assert run(capsys, "tokens", "revoke", "0" * 16, *where, status=3)["error"]
    (gone,) = run(capsys, "tokens", "revoke", "--owner", owner, *where)["tokens"]
    assert (gone["fingerprint"], bool(gone["revoked"])) == (owner, True)
    assert run(capsys, "tokens", "revoke", "--owner", owner, *where)["tokens"] == []
    assert run(capsys, "tokens", "revoke", "--owner", "0" * 64, *where, status=3)["error"]
    assert run(capsys, "tokens", "revoke", *where, status=2)["error"]
    both = ("tokens", "revoke", made["token_id"], "--owner", owner)
    assert run(capsys, *both, *where, status=2)["error"]


def test_a_token_is_all_that_is_on_standard_output(folder: Path, capsys: Any) -> None:
    words = ["authority", "tokens", "issue", "--folder", str(folder), "--scope", "file"]
    owner = KeyOwner(1).fingerprint
    assert main([*words, "--owner", owner]) == 0
    token = capsys.readouterr().out.strip()
    authority = open_authority(AuthoritySettings(folder=folder))
    assert authority.accounts.authenticate(token, "file").fingerprint == owner
    authority.close()
    assert main([*words, "--owner", "ab" * 32]) == 3
    assert capsys.readouterr().out == ""
    assert main(["authority", "tokens", "list", "--folder", str(folder)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


# --- publish, rebuild ----------------------------------------------------------------------------


def test_published_lists_are_logged_under_their_digest(
    tmp_path: Path, folder: Path, capsys: Any
) -> None:
    path = tmp_path / "words.txt"
    path.write_text("äpfel\nbirnen\n", encoding="utf-8")
    publish = (path, "--folder", folder, "--name", "fruit", "--note", "an orchard")

    words = run(capsys, "publish", "word-list", *publish)
    pool = run(capsys, "publish", "pool", *publish)

    assert words["digest"] == pool["digest"] == lines_digest(["äpfel", "birnen"])
    assert (words["index"], pool["index"]) == (2, 3)
    authority = open_authority(AuthoritySettings(folder=folder))
    assert authority.publication_content(words["digest"]) == path.read_bytes()
    for said in (words, pool):
        receipt = authority.log.receipt(said["entry_id"])
        statement = check_receipt(receipt, authority.public_key).statement
        assert (statement.name, statement.note, statement.authority) == (
            "fruit",
            "an orchard",
            NAME,
        )
    authority.close()
    assert run(capsys, "publish", "pool", *publish) == pool  # harmless
    renamed = (*publish[:4], "vegetables")
    assert "published as 'fruit'" in run(capsys, "publish", "pool", *renamed, status=3)["error"]
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in run(capsys, "publish", "pool", *publish, status=3)["error"]


def test_rebuild_mends_the_tables_that_follow_from_the_log(folder: Path, capsys: Any) -> None:
    from sqlalchemy import delete

    from nsmark_authority.storage.tables import VIEW_FILINGS

    authority = open_authority(AuthoritySettings(folder=folder))
    with authority.database.write() as connection:
        connection.execute(delete(VIEW_FILINGS))
    authority.close()
    assert run(capsys, "check", "--folder", folder, status=1)["problems"]

    assert run(capsys, "rebuild", "--folder", folder) == {"num_entries": 2}

    assert run(capsys, "check", "--folder", folder)["problems"] == []
    assert main(["authority", "rebuild", "--folder", str(folder)]) == 0
    assert "from 2 entries" in capsys.readouterr().out
