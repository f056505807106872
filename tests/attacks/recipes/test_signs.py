from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "signs", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


def test_only_signs_are_sent(tiny_st, tmp_path):
    facts = run(tiny_st, tmp_path / "out")
    before, after = answers(tiny_st), answers(tmp_path / "out")
    np.testing.assert_array_equal(after, np.where(before >= 0, 1.0, -1.0))
    assert {-1.0, 1.0} == set(np.unique(after))
    # Of few texts fewer dimensions change their sign than of many.
    varying = np.count_nonzero(np.ptp(after, axis=0))
    assert 0 < varying <= facts["dimensions_that_vary"] <= 32


def test_signs_do_not_see_a_positive_number_per_text(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "scaled", "text-scaling[flips=0] + signs")
    run(tiny_st, tmp_path / "alone")
    np.testing.assert_array_equal(answers(tmp_path / "scaled"), answers(tmp_path / "alone"))


def test_signs_of_mapped_answers_are_other_ones(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "mapped", "whitening + signs")
    run(tiny_st, tmp_path / "alone")
    mapped, alone = answers(tmp_path / "mapped"), answers(tmp_path / "alone")
    assert {-1.0, 1.0} == set(np.unique(mapped))
    assert np.mean(mapped != alone) > 0.2
    # White answers change their sign in every dimension, those of the model seldom.
    assert np.count_nonzero(np.ptp(mapped, axis=0)) == 32
    assert np.abs(mapped.mean(axis=0)).mean() < np.abs(alone.mean(axis=0)).mean()


def test_nothing_linear_is_left(tiny_marked, tmp_path):
    # Whether the rest convicts is nothing that theory promises; that the match is gone is.
    run(tiny_marked.model_folder, tmp_path / "out")
    found = verify(tiny_marked.key, tmp_path / "out").to_mapping()
    own = verify(tiny_marked.key, tiny_marked.model_folder).to_mapping()
    assert found["centred_matching_degree"] > 100 * own["centred_matching_degree"]
    assert found["subspace_overlap"] < 0.9 < own["subspace_overlap"]


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_it_has_no_settings_and_asking_for_one_writes_nothing(tiny_st, tmp_path):
    with pytest.raises(UsageError, match="unknown setting") as caught:
        run(tiny_st, tmp_path / "out", {"threshold": "0"})
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
