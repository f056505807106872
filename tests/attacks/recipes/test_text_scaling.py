from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "text-scaling", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


def factors(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The number that each row was multiplied by, refusing rows that were turned."""
    found = np.sum(before * after, axis=1) / np.sum(before**2, axis=1)
    np.testing.assert_allclose(after, before * found[:, None], atol=1e-6)
    return found


@pytest.mark.parametrize("flips", ["0", "1"])
def test_every_answer_gets_its_own_number_and_keeps_its_direction(tiny_st, tmp_path, flips):
    run(tiny_st, tmp_path / "out", {"flips": flips})
    found = factors(answers(tiny_st), answers(tmp_path / "out"))
    sizes = np.abs(found)
    assert sizes.min() >= 0.2 - 1e-5
    assert sizes.max() <= 5 + 1e-5
    assert len(set(sizes.round(6))) == len(TEXTS)
    assert sizes.std() > 1  # uniform on [0.2, 5]: 1.39
    assert (found < 0).any() == (flips == "1")
    assert (found > 0).any()


def test_a_text_asked_again_gets_another_number(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    suspect = open_suspect(tmp_path / "out", device="cpu")
    before = answers(tiny_st)
    first, second = (factors(before, suspect.outputs(TEXTS).astype(float)) for _ in range(2))
    assert np.abs(first - second).min() > 0
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.5


@pytest.mark.parametrize("flips", ["0", "1"])
def test_aligned_scales_give_it_away(tiny_marked, tmp_path, flips):
    run(tiny_marked.model_folder, tmp_path / "out", {"flips": flips})
    report = verify(tiny_marked.key, tmp_path / "out")
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["aligned_subspace_overlap"] > 0.999
    assert found["alignment_gap"] < 0.01
    # Without aligning nothing would fit.
    assert found["subspace_overlap"] < 0.9
    assert found["invariant_matching_degree"] > 1


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_the_same_seed_gives_the_same_numbers(tiny_st, tmp_path):
    for name, seed in (("one", "7"), ("again", "7"), ("other", "8")):
        run(tiny_st, tmp_path / name, {"seed": seed})
    one, again, other = (answers(tmp_path / name) for name in ("one", "again", "other"))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    run(tiny_st, tmp_path / "largest", {"seed": str(2**63 - 1)})
    factors(answers(tiny_st), answers(tmp_path / "largest"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"flips": "2"},
        {"flips": "-1"},
        {"flips": "yes"},
        {"seed": "-1"},
        {"seed": str(2**63)},
        {"sign": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
