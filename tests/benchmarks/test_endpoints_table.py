"""The benchmark of endpoints: its page says what its rows say, and it runs on tiny models."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from infinity_server import PROGRAM, READY
from nsmark.suspects import save_recorded

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "endpoints.py"


def load_script():
    spec = importlib.util.spec_from_file_location("benchmarks_endpoints", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # the script adds its folder; others shall not see
        spec.loader.exec_module(module)
    return module


script = load_script()

# The script has loaded its parts: they are found though its folder is off the path again.
from endpoints_table import servers  # noqa: E402
from endpoints_table.asking import largest_difference, read_row, without_paths  # noqa: E402
from endpoints_table.page import markdown, number  # noqa: E402

PLAN = "asking 212 texts in 7 requests, 20 of them decoys, about 7065 tokens\n30/192  texts\n"
FOUND = {
    "verdict": "owned",
    "extraction_rate": 0.75,
    "invariant_matching_degree": 2e-6,
    "predictability": 0.5,
    "seconds": 1.0,
}
PART = {
    "model": "tiny",
    "marks": ["paper", "derived"],
    "num_bits": 16,
    "num_texts": 96,
    "steps": 170,
    "seconds_to_mark": 5.6,
}


def named(suspect: str, through: str, row: dict, seconds: float | None = 2.04) -> dict:
    return {"suspect": suspect, "through": through, "seconds": seconds, **row}


def document(embeddings: list[dict], completions: list[dict]) -> dict:
    return {
        "command": "python benchmarks/endpoints.py --tiny",
        "environment": {
            "machine": "x, 2 cores",
            "threads": "1",
            "python": "3.11",
            "torch": None,
        },
        "infinity": {"infinity-emb": "9.9"},
        "summary": script.summarise([*embeddings, *completions]),
        "seconds": 61.4,
        "embeddings": PART | {"rows": embeddings},
        "completions": PART | {"steps": None, "rows": completions},
    }


def test_a_row_holds_what_the_program_printed():
    row = read_row(0, json.dumps(FOUND), PLAN)

    assert (row["status"], row["verdict"], row["exit_code"]) == ("measured", "owned", 0)
    assert (row["queries"], row["requests"], row["decoys"]) == (212, 7, 20)
    assert row["extraction_rate"] == 0.75
    assert row["subspace_overlap"] is None


def test_a_row_of_a_folder_has_no_queries_and_one_without_decoys_has_none():
    assert read_row(0, json.dumps(FOUND), "192/192  texts")["queries"] is None
    assert read_row(0, json.dumps(FOUND), "asking 5 texts in 1 requests")["decoys"] == 0


def test_a_failure_is_a_row_with_its_reason():
    error = {"verdict": "could_not_measure", "predictability": None, "error": "no tokens"}
    row = read_row(3, json.dumps(error), PLAN)
    assert (row["status"], row["error"]) == ("not measured", "no tokens")

    row = read_row(1, "", "Traceback: something broke")
    assert (row["status"], row["verdict"]) == ("not measured", None)
    assert row["error"] == "Traceback: something broke"


def test_the_page_says_what_the_rows_say():
    owned = read_row(0, json.dumps(FOUND), PLAN) | {"difference": 9e-8, "requests_answered": 7}
    absent = servers.not_run("infinity-emb is\nnot installed")
    failed = read_row(3, json.dumps({"verdict": "could_not_measure", "error": "few"}), PLAN)
    page = markdown(
        document(
            [named("marked", "base64", owned), named("unmarked", "base64", absent, None)],
            [named("marked", "20 tokens", failed)],
        )
    )

    line = (
        "| marked | base64 | owned | 0 | 0.750 | – | 2.0e-06 | – | 0.500 | – | 212 | 20 | 7 "
        "| 9.0e-08 | 2.0 |"
    )
    assert line in page
    assert "| unmarked | base64 | not run | – | – |" in page
    assert "- unmarked, base64: infinity-emb is not installed" in page
    assert "| marked | 20 tokens | could_not_measure | 3 |" in page
    assert "- marked, 20 tokens: few" in page
    assert "owned: 1 of 1 measurements of marked models, 0 of 0 of unmarked ones" in page
    assert "could not measure: 1; not run: 1" in page
    assert "in 170 steps, 6 s." in page
    assert "Served: tiny, marked before.\n" in page
    assert "- x, 2 cores, 1 thread(s) in each process\n- python 3.11\n" in page
    assert "- the embeddings server: infinity-emb 9.9\n" in page


def test_numbers_are_short():
    shown = [number(value) for value in (None, 0.0, 0, 212, 0.12345, 1e-5, 123.4)]
    assert shown == ["–", "0.000", "0", "212", "0.123", "1.0e-05", "123"]


def test_no_folder_of_the_machine_is_named(tmp_path):
    row = {"error": f"no model in {tmp_path}/model", "reasons": [f"{tmp_path}"], "seconds": 1.0}
    clean = without_paths(row, [(tmp_path, "WORK")])
    assert clean == {"error": "no model in WORK/model", "reasons": ["WORK"], "seconds": 1.0}


def test_recordings_are_compared(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    save_recorded(first, np.zeros((2, 3)), np.zeros((2, 3)))
    assert largest_difference(first, second) is None
    save_recorded(second, np.zeros((2, 3)), np.full((2, 3), -0.25))
    assert largest_difference(first, second) == 0.25


def test_a_missing_server_makes_rows_that_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(servers, "READY", tmp_path / "absent")
    monkeypatch.setattr(servers, "verify", lambda *args, **kwargs: dict(FOUND))
    pair = servers.Pair(tmp_path / "key", tmp_path / "marked", tmp_path / "unmarked")

    rows = list(servers.embedding_rows(pair, tmp_path))

    assert [row.get("status") for row in rows] == [None, "not run", "not run"] * 2
    assert "is not installed" in rows[1]["error"]


@pytest.mark.parametrize(
    "words", [[], ["--marked", "m", "--model", "m"], ["--tiny", "--marked", "m", "--key", "k"]]
)
def test_arguments_that_do_not_belong_together_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        script.parse_arguments([*words, "--json", "out"])
    assert "--m" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_runs_on_tiny_models(tmp_path):
    """In a process of its own, as it is used."""
    if not (READY.exists() and PROGRAM.exists()):
        pytest.skip(f"no embeddings server: {servers.missing_infinity()}")
    words = ["--tiny", "--work", tmp_path / "work"]
    words += ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], check=True, timeout=1500)

    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    rows = found["embeddings"]["rows"] + found["completions"]["rows"]
    for row in rows:
        if "likeliest" in row["through"]:  # too few in common: said, not guessed
            assert (row["verdict"], row["exit_code"]) == ("could_not_measure", 3)
            assert row["requests_refused"] > 0
            assert row["requests_answered"] < row["requests"]  # nothing more is asked then
        else:
            expected = ("owned", 0) if row["suspect"] == "marked" else ("not_shown", 1)
            assert (row["verdict"], row["exit_code"]) == expected
        if not row["through"].startswith("folder") and "likeliest" not in row["through"]:
            assert row["requests_answered"] == row["requests"] > 0
            assert 0 < row["decoys"] < row["queries"]
    served = [row for row in found["embeddings"]["rows"] if "infinity" in row["through"]]
    assert len(served) == 4
    assert all(row["difference"] < 1e-5 for row in served)
    assert str(tmp_path) not in (tmp_path / "out.json").read_text(encoding="utf-8")
    assert "## Embeddings" in (tmp_path / "out.md").read_text(encoding="utf-8")
