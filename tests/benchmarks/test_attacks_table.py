"""The script and the page about attacks."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_the_whole_runs_on_a_tiny_model(tiny_marked, tiny_st, tmp_path):
    out = tmp_path / "out.json"
    words = ["--key", tiny_marked.key_file, "--marked", tiny_marked.model_folder]
    words += ["--reference", tiny_st, "--texts", "300", "--task-texts", "200"]
    words += ["--only", "ll-lfea", "--device", "cpu", "--json", out, "--work", tmp_path / "work"]
    script = [sys.executable, str(FOLDER / "attacks.py"), *map(str, words)]
    subprocess.run(script, check=True, timeout=900)
    document = json.loads(out.read_text(encoding="utf-8"))
    rows = document["suites"]["topics"]
    assert rows[0]["verdict"] == "owned"
    assert {row["how"] for row in document["recovery"]} == {"as it is", "after ll-lfea"}
    page = runpy.run_path(str(FOLDER / "attacks_table" / "page.py"))["markdown"](document)
    assert "Ownership is shown after" in page
    assert "| none | owned |" in page
    assert "| marked | nothing | 1 |" in page
