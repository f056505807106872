"""The benchmark of verdicts runs, and its page says what its rows say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("evidence", FOLDER / "evidence.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["evidence"] = module  # the judges' processes look it up by its name
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    del sys.modules["evidence"]


STATISTICS = (
    "extraction_rate",
    "predictability",
    "aligned_predictability",
    "aligned_subspace_overlap",
)


def row(name: str, *, theft: bool, owned: bool) -> dict:
    values = dict.fromkeys(
        (
            "extraction_rate",
            "derived_extraction_rate",
            "invariant_matching_degree",
            "subspace_overlap",
            "predictability",
            "aligned_subspace_overlap",
            "aligned_predictability",
            "alignment_gap",
        ),
        0.9 if theft else 0.1,
    )
    verdict = "owned" if owned else "not_shown"
    return {
        "theft": theft,
        "beyond": "60%" in name,
        "name": name,
        "triggered": values,
        "untriggered": values,
        "lines": dict.fromkeys(STATISTICS, 0.5),
        "verdict": verdict,
        "paper": verdict,
    }


def test_the_page_names_who_was_missed_and_who_was_accused(script):
    rows = [
        row("marked | as it is", theft=True, owned=True),
        row("marked, pruned 60% | as it is", theft=True, owned=False),
        row("unmarked | as it is", theft=False, owned=False),
        row("random | as it is", theft=False, owned=True),
    ]
    summary = script.summarise(rows)
    assert (summary["thefts"], summary["thefts_found"]) == (2, 1)
    assert (summary["promised"], summary["promised_found"]) == (1, 1)
    assert (summary["innocents"], summary["innocents_accused"]) == (2, 1)
    assert summary["area_under_roc"] == 1.0
    assert summary["separation"][0]["area_under_roc"] == 1.0
    calibration = {
        "num_control_models": 20,
        "confidence": 0.95,
        "control_models_accused": 0,
        "false_accusation_bound": 0.14,
    }
    document = {
        "preset": "fast",
        "marks": ["paper"],
        "command": "x",
        "rate": 1e-3,
        "calibration": calibration,
    }
    page = script.markdown([document | summary | {"rows": rows}])
    assert "### Missed thefts" in page
    assert "marked, pruned 60%: as it is" in page
    assert "### Innocents accused" in page
    assert "| as it is | 1 of 2 | 1 of 2 |" in page


def test_a_margin_counts_only_where_the_rule_accuses(script):
    assert script.margin(row("marked", theft=True, owned=True)) > 1
    assert script.margin(row("marked", theft=True, owned=False)) == -np.inf
    assert -1 < script.margin(row("unmarked", theft=False, owned=False)) < 0
    unmeasured = row("signs", theft=False, owned=False) | {"lines": None}
    assert script.margin(unmeasured) == -np.inf


@pytest.mark.slow
def test_the_whole_runs_on_a_tiny_model(tiny_st, tmp_path):
    """In a process of its own: it starts processes itself."""
    import subprocess

    words = ["--model", tiny_st, "--tiny", "--tasks", "1", "--steps", "3", "--processes", "1"]
    words += ["--device", "cpu", "--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    subprocess.run(
        [sys.executable, str(FOLDER / "evidence.py"), *map(str, words)], check=True, timeout=1500
    )
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["innocents"] >= 200
    assert document["thefts"] > 50
    marked = next(r for r in document["rows"] if r["name"] == "marked | as it is")
    assert marked["verdict"] == "owned"
    assert "## Preset `fast`" in (tmp_path / "out.md").read_text(encoding="utf-8")
