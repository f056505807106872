from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "near-singular", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


@pytest.fixture(scope="module")
def stolen(tiny_marked, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("near-singular") / "model"
    run(tiny_marked.model_folder, out)
    return out


def stored_map(folder: Path) -> np.ndarray:
    return load_file(folder / "3_Dense" / "model.safetensors")["linear.weight"].astype(np.float64)


@pytest.mark.parametrize("condition", [1.0, 100.0, 1e5])
def test_the_factors_fall_by_the_same_share_each(tiny_st, tmp_path, condition):
    facts = run(tiny_st, tmp_path / "out", {"condition": str(condition)})
    factors = np.linalg.svd(stored_map(tmp_path / "out"), compute_uv=False)
    np.testing.assert_allclose(factors, np.geomspace(1, 1 / condition, 32), rtol=0.02)
    assert facts["condition_number"] == pytest.approx(condition, rel=1e-3)


def test_answers_are_mapped_and_the_strong_directions_can_be_undone(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out", {"condition": "1000"})
    before, after = answers(tiny_st), answers(tmp_path / "out")
    matrix = stored_map(tmp_path / "out")
    np.testing.assert_allclose(after, before @ matrix.T, atol=1e-6)
    # Invertible: with a thousand, float32 answers still determine those before.
    np.testing.assert_allclose(np.linalg.solve(matrix, after.T).T, before, atol=1e-3)
    assert np.abs(after - before).max() > 0.1


def test_the_null_space_stays_where_it_was(tiny_marked, stolen):
    # The paper's rule asks the null space alone; the calibrated one also wants controls of the
    # same rank, and a direction that falls below the rounding costs one.
    report = verify(tiny_marked.key, stolen, rule="paper")
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["invariant_matching_degree"] < 0.1
    assert found["subspace_overlap"] > 0.99
    assert found["extraction_rate"] < 0.5


def test_a_map_without_lost_directions_is_seen_through(tiny_marked, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "out", {"condition": "30"})
    report = verify(tiny_marked.key, tmp_path / "out")
    assert report.verdict == "owned"
    assert report.evidence.triggered.subspace_overlap > 0.999


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_the_same_seed_gives_the_same_attack(tiny_marked, stolen, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "again")
    run(tiny_marked.model_folder, tmp_path / "other", {"seed": "1"})
    np.testing.assert_array_equal(answers(tmp_path / "again"), answers(stolen))
    assert np.abs(answers(tmp_path / "other") - answers(stolen)).max() > 0.01


@pytest.mark.parametrize(
    "wrong",
    [
        {"condition": "0.9"},
        {"condition": "1000001"},
        {"condition": "-10"},
        {"condition": "nan"},
        {"condition": "inf"},
        {"condition": "bad"},
        {"seed": "-1"},
        {"rank": "3"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
