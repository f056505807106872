"""The sources of texts as the command line takes them: what ends with which status."""

from __future__ import annotations

import json

import pytest
from text_formats import json_lines, separated, write

from conftest import make_identity
from handmade_keys import make_key
from nsmark.cli.main import main
from nsmark.keyfile import write_key

CASES = [
    ("missing.csv", 3, "cannot read text file"),
    ("missing.csv#column", 3, "cannot read text file"),
    ("good.csv#column", 3, "no column 'column'; it has: 'id', 'text', 'label'"),
    ("good.csv#", 2, "lacks a file or a column"),
    ("good.txt#text", 2, "plain text"),
    ("", 2, "an empty path"),
    (".", 3, "Is a directory"),
    ("bad.jsonl", 3, "line 2: not JSON"),
    ("bad.txt.gz", 3, "not a whole gzip file"),
    ("bad.txt", 3, "byte 3 (line 1)"),
    ("empty.jsonl", 3, "holds no text"),
    ("dataset:", 2, "names no dataset"),
    ("dataset:./missing", 3, "no such folder"),
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    make_identity(1).save(tmp_path / "alice")
    write_key(make_key(), tmp_path / "owner.nsmark")
    write(tmp_path, "good.csv", separated(["one", "two"]))
    write(tmp_path, "good.txt", b"one\ntwo")
    write(tmp_path, "good.jsonl.gz", json_lines(["one", "two"]))
    write(tmp_path, "bad.jsonl", b'"a"\n{')
    write(tmp_path, "bad.txt", b"bad\xff")
    (tmp_path / "bad.txt.gz").write_bytes(b"bad")
    write(tmp_path, "empty.jsonl", b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


EMBED = ["embed", "model", "--identity", "alice.pem", "--owner", "o", "--message", "m"]
EMBED += ["--out", "out", "--json"]
VERIFY = ["verify", "owner.nsmark", "recorded:answers.npz", "--json"]


@pytest.mark.parametrize(("source", "status", "message"), CASES)
@pytest.mark.parametrize("words", [[*EMBED, "--corpus"], [*EMBED, "--pool"], [*VERIFY, "--pool"]])
def test_a_bad_source_ends_with_two_lines_and_its_status(
    place, capsys, words, source, status, message
):
    before = sorted(place.iterdir())
    assert main([*words, source]) == status
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert message in document["error"]
    assert document["hint"]
    assert document["exit_code"] == status
    error, hint = captured.err.splitlines()
    assert error == f"error: {document['error']}"
    assert hint.startswith("hint: ")
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("source", ["good.txt", "good.csv", "good.csv#text", "good.jsonl.gz"])
def test_a_good_source_is_handed_on(place, monkeypatch, source):
    seen = {}

    class StopError(Exception):
        pass

    def stop(*arguments, **options):
        seen.update(options)
        raise StopError

    monkeypatch.setattr("nsmark.api.embed", stop)
    monkeypatch.setattr("nsmark.api.verify", stop)
    main([*EMBED, "--corpus", source, "--pool", source])
    assert list(seen["corpus"]) == seen["pool"] == ["one", "two"]
    seen.clear()
    main([*VERIFY, "--pool", source])
    assert seen["pool"] == ["one", "two"]
