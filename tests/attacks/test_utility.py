"""What is left of a model's use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.attacks.material import Task
from nsmark.attacks.utility import Yield, classifier_accuracy, pairwise_similarities

seeds = st.integers(0, 2**32 - 1)


def labelled(seed: int, count: int, dim: int = 8, classes: int = 3) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    centres = np.random.default_rng(99).standard_normal((classes, dim)) * 4
    return centres[labels] + rng.standard_normal((count, dim)), labels.tolist()


@settings(max_examples=20, deadline=None)
@given(seeds, st.floats(1e-3, 1e3))
def test_a_linear_map_costs_a_classifier_nothing(seed, scale):
    rng = np.random.default_rng(seed)
    (train, labels), (test, truth) = labelled(seed, 200), labelled(seed + 1, 100)
    matrix = np.linalg.qr(rng.standard_normal((8, 8)))[0] * scale
    before = classifier_accuracy(train, labels, test, truth)
    after = classifier_accuracy(train @ matrix, labels, test @ matrix, truth)
    assert before > 0.9
    assert after == pytest.approx(before, abs=0.02)


def test_noise_alone_is_worth_guessing():
    rng = np.random.default_rng(0)
    _, labels = labelled(0, 400)
    _, truth = labelled(1, 400)
    found = classifier_accuracy(
        rng.standard_normal((400, 8)), labels, rng.standard_normal((400, 8)), truth
    )
    assert 0.2 < found < 0.5


def test_similarities_do_not_see_lengths_and_see_everything_else():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 6)) + 1
    similar = pairwise_similarities(rows)
    assert similar.shape == (780,)
    np.testing.assert_allclose(
        pairwise_similarities(rows * rng.uniform(1, 9, (40, 1))), similar, atol=1e-12
    )
    test_texts = [str(i) for i in range(10, 40)]
    task = Task("t", [str(i) for i in range(10)], [0, 1] * 5, test_texts, [0, 1] * 15)
    whole = np.random.default_rng(1).standard_normal((40, 6))
    turned = np.linalg.qr(rng.standard_normal((6, 6)))[0]

    def answering(rows: np.ndarray):
        return lambda asked: rows[[int(text) for text in asked]]

    before = Yield.of(answering(whole), task)
    same = before.after(Yield.of(answering(whole @ turned), task))
    assert same.similarity == pytest.approx(1)
    other = before.after(Yield.of(answering(rng.standard_normal((40, 6))), task))
    assert abs(other.similarity) < 0.3
    constant = before.after(Yield.of(answering(np.ones((40, 6))), task))
    assert constant.similarity == 0
    assert constant.to_mapping()["points_lost"] == pytest.approx(
        100 * (before.accuracy - constant.accuracy)
    )
