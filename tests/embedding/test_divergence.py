from __future__ import annotations

import pytest

from nsmark.embedding.config import preset_config
from nsmark.embedding.divergence import DivergenceWatch, trained_losses
from nsmark.embedding.stages import training_stages


def watch(values, *, targets_held=False, name="match"):
    """Feed one loss and return (step of the verdict, verdict)."""
    found = DivergenceWatch()
    for step, value in enumerate(values, 1):
        losses = {"match": 0.1, "original": 0.1} | {name: value}
        problem = found.update(losses, targets_held)
        if problem:
            return step, problem
    return None


@pytest.mark.parametrize(
    ("values", "targets_held"),
    [
        ([1.0] * 100, False),
        ([3.0] + [29.0] * 100, False),  # outputs of great length begin with a great loss
        ([1.0] + [1e6] * 19 + [1.0], False),  # wild, yet it came back
        ([0.001] + [0.4] * 100, True),  # noise between batches
        ([0.2] + [1.9] * 100, True),
    ],
)
def test_a_training_that_may_still_end_well_goes_on(values, targets_held):
    assert watch(values, targets_held=targets_held) is None


@pytest.mark.parametrize(
    ("values", "targets_held", "expected"),
    [
        ([1.0] + [10.5] * 100, False, "10.5, beyond 10"),
        ([0.001] + [0.6] * 100, True, "0.6, beyond 0.5"),
        ([0.2] + [2.1] * 100, True, "2.1, beyond 2"),
    ],
)
def test_a_match_loss_that_stays_beyond_its_bound_ends_it(values, targets_held, expected):
    step, problem = watch(values, targets_held=targets_held)
    assert step == 21
    assert expected in problem


def test_a_model_that_forgot_its_own_task_ends_it():
    assert watch([2.0] + [99.0] * 100, name="original") is None
    assert watch([50.0] + [499.0] * 100, name="original") is None  # weighted highly from the start
    step, problem = watch([2.0] + [101.0] * 100, name="original")
    assert (step, "original loss" in problem) == (21, True)


def test_what_a_stage_does_not_train_may_not_stop_it():
    first, second = training_stages(preset_config("strong"))
    assert trained_losses(first.config) == ("original",)
    assert trained_losses(second.config) == ("match", "original")
    found = DivergenceWatch()
    assert not any(found.update({"original": 0.1}, True) for _ in range(100))
    problems = [found.update({"original": 1e6}, True) for _ in range(20)]
    assert "original loss" in problems[-1]
