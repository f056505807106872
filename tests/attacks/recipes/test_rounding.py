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
    return attack(model, out, "rounding", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


def steps(folder: Path) -> np.ndarray:
    return load_file(folder / "serving.safetensors")["0.step"]


@pytest.mark.parametrize("levels", [3, 15, 255, 4095])
@pytest.mark.parametrize("how", ["whole", "per-dimension"])
def test_entries_lie_on_so_many_levels_next_to_what_they_were(tiny_st, tmp_path, how, levels):
    facts = run(tiny_st, tmp_path / "out", {"levels": str(levels), "how": how})
    before, after, step = answers(tiny_st), answers(tmp_path / "out"), steps(tmp_path / "out")
    assert step.shape == ((1,) if how == "whole" else (32,))
    assert (facts["largest_step"], facts["smallest_step"]) == (step.max(), step.min())
    numbers = after / step
    np.testing.assert_allclose(numbers, numbers.round(), atol=1e-3)
    assert np.abs(numbers).max() < levels / 2
    most = step * (levels // 2)
    expected = np.clip(before, -most, most)  # what lies beyond the extremes gets the last level
    assert (np.abs(after - expected) <= step / 2 + 1e-6).all()
    assert np.abs(after - before).max() > 0


def test_levels_per_dimension_are_the_finer_ones(tiny_st, tmp_path):
    for how in ("whole", "per-dimension"):
        run(tiny_st, tmp_path / how, {"how": how})
    whole, own = (steps(tmp_path / how) for how in ("whole", "per-dimension"))
    assert own.max() == pytest.approx(whole[0])
    assert own.min() < 0.7 * whole[0]


def test_the_extremes_are_found_after_the_steps_before(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "out", "ll-lfea + rounding[levels=15]")
    found = answers(tmp_path / "out")
    assert np.abs(found).max() > 0.5
    assert 3 <= len(np.unique(found.round(5))) <= 15


def test_eight_bits_leave_the_signature_readable_and_the_null_space_close(tiny_marked, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "out")
    found = verify(tiny_marked.key, tmp_path / "out", rule="paper").to_mapping()
    own = verify(tiny_marked.key, tiny_marked.model_folder, rule="paper").to_mapping()
    assert found["verdict"] == "owned"
    assert found["extraction_rate"] > 0.9
    # Rounding is no linear map: the match is no longer exact.
    assert found["invariant_matching_degree"] > 10 * own["invariant_matching_degree"]


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_nothing_is_drawn(tiny_st, tmp_path):
    for name in ("one", "again"):
        run(tiny_st, tmp_path / name, {"how": "per-dimension"})
    one, again = (answers(tmp_path / name) for name in ("one", "again"))
    np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": "1"},
        {"levels": "2"},
        {"levels": "256"},  # even: zero would be no level
        {"levels": "65537"},
        {"levels": "-255"},
        {"levels": "8.5"},
        {"how": "each"},
        {"bits": "8"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
