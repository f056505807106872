from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None, pooling: str | None = None):
    return attack(model, out, "dimension-expansion", settings, pooling=pooling)


def answers(folder: Path, **how: Any) -> np.ndarray:
    return open_suspect(folder, device="cpu", **how).outputs(TEXTS).astype(np.float64)


@pytest.mark.parametrize(("dimensions", "expected"), [("0", 64), ("33", 33), ("150", 150)])
def test_all_lengths_and_angles_stay(tiny_bert, tmp_path, dimensions, expected):
    facts = run(tiny_bert, tmp_path / "out", {"dimensions": dimensions}, pooling="mean")
    before = answers(tiny_bert, pooling="mean", normalise=False)
    after = answers(tmp_path / "out")
    assert after.shape == (len(TEXTS), expected)
    assert (facts["output_dim"], facts["output_dim_before"]) == (expected, 32)
    np.testing.assert_allclose(after @ after.T, before @ before.T, rtol=1e-4, atol=1e-3)


def test_the_answers_are_spread_over_all_dimensions_and_still_linear(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    before, after = answers(tiny_st), answers(tmp_path / "out")
    assert after.std(axis=0).min() > 0.001
    assert np.linalg.matrix_rank(after, tol=1e-4) == np.linalg.matrix_rank(before, tol=1e-4)
    matrix = np.linalg.lstsq(before, after, rcond=None)[0]
    np.testing.assert_allclose(before @ matrix, after, atol=1e-5)


@pytest.mark.parametrize("dimensions", ["0", "200"])
def test_ownership_shows_in_more_dimensions_also_than_texts(tiny_marked, tmp_path, dimensions):
    run(tiny_marked.model_folder, tmp_path / "out", {"dimensions": dimensions})
    report = verify(tiny_marked.key, tmp_path / "out")
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["extraction_rate"] is None
    assert found["invariant_matching_degree"] < 0.1
    assert found["subspace_overlap"] > 0.999


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_the_same_seed_gives_the_same_attack(tiny_st, tmp_path):
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        run(tiny_st, tmp_path / name, {"seed": seed})
    one, again, other = (answers(tmp_path / name) for name in ("one", "again", "other"))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimensions": "-1"},
        {"dimensions": "32"},
        {"dimensions": "31"},
        {"dimensions": "65537"},
        {"dimensions": "twice"},
        {"seed": "-1"},
        {"noise": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
