"""The script and the page about filters of queries."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import TINY_PAYLOAD, TINY_TRAINING

LEARNED_SOON = {
    "marks": ("paper", "derived", "pairs"),
    "model_learning_rate": 4e-3,
    "max_steps": 1500,
    "cooldown_steps": 40,
    "pair_margin": 0.5,
    "pair_keep_weight": 0.02,
    "pair_alone_weight": 0.1,
}
FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    before, loaded = list(sys.path), set(sys.modules)
    spec = importlib.util.spec_from_file_location("filters_script", FOLDER / "filters.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in set(sys.modules) - loaded:
        if name.partition(".")[0] in ("attacks", "attacks_table"):
            del sys.modules[name]


def row(attack: str, lost: float, counted: float | None, betting: float | None) -> dict:
    is_shown = counted is None or counted <= 1e-12 or betting <= 1e-15
    return {
        "attack": attack,
        "verdict": "owned" if is_shown else "not_shown",
        "statistics": {
            "extraction_rate": 0.004,
            "pair_code_rate": None if counted is None else 0.75,
            "pair_code_p_value": counted,
            "pair_wager_p_value": betting,
        },
        "utility": {"points_lost": lost, "similarity": 0.9, "accuracy_before": 0.8},
        "error": None,
    }


def document(rows: list[dict], innocent: list[dict]) -> dict:
    return {
        "command": "python …",
        "environment": {"torch": "2"},
        "about": "A model.",
        "suites": {"sst2": rows},
        "innocent": innocent,
    }


def test_page_counts_what_either_way_of_reading_shows_by_what_filters_cost(script):
    rows = [
        row("none", 0.0, 1e-38, 1e-70),
        row("cheap", 0.2, 1e-8, 1e-27),
        row("also cheap", 1.0, 1e-20, 1e-40),
        row("dear", 7.0, 0.3, 1e-15),
        row("dearer", 12.0, 0.3, 1e-14),
    ]
    page = script.markdown(document(rows, [row("cheap", 0.0, 0.4, 1.0)]))
    assert (
        "of 2 that cost at most one point, 1 by counting signs, 2 by betting; of 2 that cost more "
        "than five points, 0 by counting signs, 1 by betting." in page
    )
    assert "| cheap | owned | 0.2 | 0.900 | 0.004 | 0.750 | 1e-08 | 1e-27 |" in page
    assert "| dearer | not shown | 12.0 |" in page
    assert "0 of 1 are accused under the same key." in page


def test_page_names_the_innocent_that_are_accused(script):
    rows = [row("none", 0.0, 1e-38, 1e-70), row("silent", 0.0, None, None)]
    page = script.markdown(document(rows, [row("cheap", 0.0, 1e-13, 1.0)]))
    assert "1 of 1 are accused under the same key: `cheap`." in page
    assert "| silent | owned | 0.0 | 0.900 | 0.004 | – | – | – |" in page


def test_every_filter_that_is_tried_can_be_parsed_and_comes_once(script):
    tried = script.plan()
    assert tried[0] == "none"
    assert len(set(tried)) == len(tried) == 1 + 6 + 8
    assert sum("texts=task" in each for each in tried) == 8


def test_the_page_in_the_docs_is_made_from_the_file_beside_it(script):
    root = FOLDER.parent
    found = json.loads((root / "results" / "filters-cpu.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "results" / "filters.md").read_text(encoding="utf-8")
    assert script.markdown(found) == page


@pytest.mark.slow
def test_the_whole_runs_on_a_tiny_model(tiny_st, identity, signed_claim, tmp_path):
    from nsmark.api import embed
    from nsmark.payload import PairConfig, published_word_list

    marked = embed(
        tiny_st,
        identity,
        signed_claim,
        tmp_path / "marked",
        num_texts=96,
        config=replace(TINY_TRAINING, **LEARNED_SOON),
        payload_config=TINY_PAYLOAD,
        pair_config=PairConfig(size=4, repeats=6),
        pair_word_list=published_word_list(),
        device="cpu",
    )
    files = {"--key": marked.key_file, "--marked": marked.model_folder, "--reference": tiny_st}
    files |= {"--json": tmp_path / "out.json", "--markdown": tmp_path / "page.md"}
    words = [*(word for pair in files.items() for word in pair), "--texts", 300]
    words += ["--task-texts", 200, "--device", "cpu", "--work", tmp_path / "work"]
    command = [sys.executable, str(FOLDER / "filters.py"), *map(str, words)]
    subprocess.run(command, check=True, timeout=900)
    found = json.loads(files["--json"].read_text(encoding="utf-8"))
    rows = found["suites"]["topics"]
    assert rows[0]["attack"] == "none"
    assert rows[0]["verdict"] == "owned"
    assert all(row["statistics"]["pair_wager_p_value"] <= 1 for row in rows)
    # The list of triggers stands in for ordinary words here: of those no text is made.
    assert rows[-1]["statistics"]["pair_code_rate"] < rows[0]["statistics"]["pair_code_rate"]
    assert "## The same filters on the unmarked model" in files["--markdown"].read_text("utf-8")
