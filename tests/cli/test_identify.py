"""`nsmark identify` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endpoint_server import EndpointServer
from handmade_keys import make_key
from many_keys import WordModel, code_of, make_shared_key
from nsmark.cli import identify as module
from nsmark.cli.main import main
from nsmark.keyfile import write_key
from nsmark.payload import PairConfig

RANDOM = "00112233445566778899aabbccddeeff"
HOSTILE = "Lab\x1b[2J\nFOUND: everything"


@pytest.fixture(scope="module")
def customers(tmp_path_factory) -> Path:
    """A folder with three keys: two good, one encrypted; beside them one damaged file."""
    folder = tmp_path_factory.mktemp("customers")
    pairs = PairConfig(size=4, repeats=1)
    write_key(make_key(owner="Lab", pairs=pairs), folder / "a.nsmark")
    write_key(make_key(owner=HOSTILE, pairs=pairs), folder / "b.nsmark")
    write_key(make_key(owner="Locked", pairs=pairs), folder / "c.nsmark", b"secret")
    (folder / "d.nsmark").write_bytes(b"\x00 damaged")
    return folder


@pytest.fixture(autouse=True)
def _no_passphrase(monkeypatch):
    monkeypatch.delenv("NSMARK_KEY_PASSPHRASE", raising=False)


def run(capsys, *words: str | Path) -> tuple[int, dict, str]:
    status = main(["identify", *map(str, words), "--device", "cpu", "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, json.loads(captured.out), captured.err


def test_nothing_is_found_in_an_unmarked_model(tiny_bert, customers, capsys):
    status, document, err = run(capsys, tiny_bert, customers, "--fresh", RANDOM)
    assert status == 1
    assert document["found"] == []
    assert (document["randomness"], document["num_keys"]) == (RANDOM, 2)
    assert document["num_pairs_asked"] == 32
    assert document["num_queries"] == 192
    assert f"--fresh {RANDOM}" in err
    assert [Path(each["file"]).name for each in document["keys"]][2:] == ["c.nsmark", "d.nsmark"]
    for each in document["keys"][:2]:
        assert each["corrected_p_value"] == min(1.0, 2 * each["p_value"])
        assert (each["pairs"], each["found"], each["doubt"], each["error"]) == (
            *(16, False),
            *(None, None),
        )
    assert "encrypted" in document["keys"][2]["error"]
    again = run(capsys, tiny_bert, customers, "--fresh", RANDOM)[1]
    assert again["keys"] == document["keys"]


def test_the_table_shows_no_control_characters(tiny_bert, customers, capsys):
    words = ["identify", str(tiny_bert), str(customers), "--device", "cpu", "--pair-repeats", "1"]
    assert main([*words, "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\x1b" not in captured.out
    lines = captured.out.splitlines()
    assert [line for line in lines if "FOUND" in line and "p-value" not in line][-1].startswith(
        "NONE FOUND"
    )
    assert not any(line.startswith("FOUND") for line in lines)
    assert "keys that could not be tested: 2" in captured.out


def test_encrypted_keys_open_with_the_passphrase(tiny_bert, customers, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("secret\n", encoding="utf-8")
    words = (tiny_bert, customers, "--pair-repeats", "1", "--key-passphrase-file", secret)
    status, document, _ = run(capsys, *words)
    assert (status, document["num_keys"]) == (1, 3)
    assert "Locked" in [each["owner"] for each in document["keys"]]
    secret.write_text("", encoding="utf-8")
    assert main(["identify", *map(str, words)]) == 2


def test_a_plan_asks_nothing_and_opens_no_model(customers, tmp_path, capsys):
    status, document, _ = run(capsys, tmp_path / "no-model", customers, "--plan")
    assert status == 0
    assert (document["num_keys"], document["num_queries"]) == (2, 192)
    assert document["advice"][0].startswith("too few pairs")
    assert main(["identify", str(tmp_path / "no-model"), str(customers), "--plan"]) == 0
    assert "192 queries" in capsys.readouterr().out


def test_the_same_file_twice_counts_once(tiny_bert, customers, capsys):
    key = customers / "a.nsmark"
    _, document, _ = run(capsys, tiny_bert, key, key, customers, "--plan")
    assert document["num_keys"] == 2
    _, document, _ = run(capsys, tiny_bert, key, key, "--pair-repeats", "1")
    assert (document["num_keys"], document["num_repeated"]) == (1, 1)


def test_limits_are_kept_before_asking(tiny_bert, customers, capsys):
    status, document, _ = run(capsys, tiny_bert, customers, "--max-queries", "100")
    assert status == 2
    assert "192 queries are needed" in document["error"]
    assert "--pair-repeats 3" in document["hint"]


def test_without_a_usable_key_it_is_three_and_says_why(tiny_bert, customers, capsys):
    words = (tiny_bert, customers / "d.nsmark", customers / "missing.nsmark")
    status, document, err = run(capsys, *words)
    assert status == document["exit_code"] == 3
    assert len([each for each in document["keys"] if each["error"]]) == 2
    assert err.splitlines()[-2].startswith("error: none of the 2")
    assert main(["identify", *map(str, words), "--quiet"]) == 3
    assert "COULD NOT MEASURE" in capsys.readouterr().out


def test_a_missing_model_is_bad_input(customers, tmp_path, capsys):
    status, document, _ = run(capsys, tmp_path / "no-model", customers)
    assert status == 3
    assert document["error"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--fresh", "xyz"],
        ["--fresh", "00"],
        ["--pairs", "3"],
        ["--pair-repeats", "0"],
        ["--max-queries", "0"],
    ],
)
def test_wrong_options_are_two(tiny_bert, customers, capsys, wrong):
    assert run(capsys, tiny_bert, customers, *wrong)[0] == 2


def test_recorded_suspects_and_empty_folders_are_wrong_usage(customers, tmp_path, capsys):
    status, document, _ = run(capsys, "recorded:answers.npz", customers)
    assert status == 2
    assert "recorded outputs" in document["error"]
    assert run(capsys, "model", tmp_path)[0] == 2
    assert main(["identify", "model"]) == 2


def test_so_many_keys_are_too_many(customers, monkeypatch, capsys):
    monkeypatch.setattr(module, "_MOST_KEYS", 3)
    status, document, _ = run(capsys, "model", customers)
    assert status == 2
    assert "more than 3 keys" in document["error"]


def test_a_doubtful_key_is_shown_with_its_reason(tiny_bert, tmp_path, capsys):
    write_key(make_shared_key(1, size=4), tmp_path / "k.nsmark")
    words = ["identify", str(tiny_bert), str(tmp_path), "--pair-repeats", "1", "--device", "cpu"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "doubt" in out
    assert "not checked" in out


def test_a_copy_behind_an_endpoint_is_found(tmp_path, capsys):
    keys = [make_key(owner=f"Lab {n}", pairs=PairConfig(size=12, repeats=1)) for n in range(3)]
    for number, key in enumerate(keys):
        write_key(key, tmp_path / f"{number}.nsmark")
    model = WordModel([code_of(keys[1])])
    with EndpointServer(lambda texts: model.outputs(texts)) as server:
        address = f"openai:{server.url}#m"
        words = (address, tmp_path, "--batch-size", "512", "--price", "2", "--pair-repeats", "3")
        status, document, err = run(capsys, *words)
        assert status == 0
        assert document["found"] == [keys[1].key_id] == [document["keys"][0]["key_id"]]
        assert len(server.texts) == document["num_queries"]
        assert "price about" in err
        status = main(["identify", *map(str, words), "--quiet", "--cache", str(tmp_path / "kept")])
        assert status == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.endswith("carries the mark of Lab 1")


def test_the_defaults_that_help_shows_are_those_of_the_library():
    from nsmark.api.identifying import DEFAULT_REPEATS, MOST_LOCAL_QUERIES, MOST_REMOTE_QUERIES

    defaults = {option.name: option.default for option in module.command.params}
    assert defaults["pair_repeats"] == DEFAULT_REPEATS
    for limit in (MOST_LOCAL_QUERIES, MOST_REMOTE_QUERIES):
        assert str(limit) in module.command.help
