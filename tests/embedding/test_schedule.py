import itertools

import pytest

from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.schedule import Schedule

CONFIG = EmbeddingConfig(max_steps=1000, cooldown_steps=100, warmup_steps=10, cooldown_fidelity=16)


def test_strictness_is_one_until_the_targets_hold():
    schedule = Schedule(CONFIG, num_texts=64)
    assert schedule.strictness(500) == 1.0
    schedule.held_since = 200
    assert schedule.strictness(200) == 1.0


@pytest.mark.parametrize(("step", "factor"), [(225, 4.0), (250, 16.0), (300, 16.0)])
def test_strictness_rises_by_factors_and_is_reached_half_way(step, factor):
    assert Schedule(CONFIG, 64, held_since=200).strictness(step) == pytest.approx(factor)


def test_strictness_never_jumps():
    schedule = Schedule(CONFIG, 64, held_since=200)
    steps = [schedule.strictness(step) for step in range(200, 301)]
    ratios = [after / before for before, after in itertools.pairwise(steps)]
    assert max(ratios) == pytest.approx(16 ** (1 / 50))
    assert min(ratios) >= 1.0


def test_rates_rise_and_fall():
    schedule = Schedule(CONFIG, 64, held_since=200)
    assert schedule.rate_factor(5) == 0.5
    assert schedule.rate_factor(150) == 1.0
    assert 0 < schedule.rate_factor(300) < schedule.rate_factor(250) < 1
    assert schedule.last_step == 300
