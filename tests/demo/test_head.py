from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.demo.head import softmax, train_head


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), classes=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_probabilities_are_positive_and_sum_to_one(seed, rows, classes):
    logits = np.random.default_rng(seed).standard_normal((rows, classes)) * 5
    found = softmax(logits)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(softmax(logits + 100), found)


def test_huge_logits_do_not_overflow():
    np.testing.assert_allclose(softmax(np.array([[1e4, 0.0], [-1e4, 0.0]])), [[1, 0], [0, 1]])


def clusters(num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=num_texts)
    outputs = np.eye(3, 10)[labels] + 0.1 * rng.standard_normal((num_texts, 10))
    return outputs / np.linalg.norm(outputs, axis=1, keepdims=True), labels


def test_a_head_learns_what_can_be_told_apart():
    outputs, labels = clusters(300)
    head = train_head(outputs[:200], labels[:200], 3)
    assert head.weight.shape == (3, 10)
    predicted = head.logits(outputs[200:]).argmax(axis=1)
    assert np.mean(predicted == labels[200:]) > 0.99


def test_a_head_cannot_learn_what_is_not_there():
    outputs, labels = clusters(300)
    shuffled = np.random.default_rng(1).permutation(labels)
    head = train_head(outputs[:200], shuffled[:200], 3)
    assert np.mean(head.logits(outputs[200:]).argmax(axis=1) == shuffled[200:]) < 0.6


def test_training_a_head_is_deterministic():
    outputs, labels = clusters(50)
    first, again = train_head(outputs, labels, 3), train_head(outputs, labels, 3)
    np.testing.assert_array_equal(first.weight, again.weight)
    np.testing.assert_array_equal(first.bias, again.bias)
