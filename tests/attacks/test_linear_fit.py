"""Fitting linear maps."""

from __future__ import annotations

import numpy as np
import pytest

from nsmark.attacks.utility import ridge_weights


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_a_penalty_means_the_same_whatever_the_size_of_the_inputs(scale):
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((40, 5)), rng.standard_normal((40, 3))
    expected = inputs @ ridge_weights(inputs, targets, 0.1)
    found = scale * inputs @ ridge_weights(scale * inputs, targets, 0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_map_is_found_and_a_large_penalty_shrinks_it():
    rng = np.random.default_rng(1)
    inputs, matrix = rng.standard_normal((40, 5)), rng.standard_normal((5, 3))
    np.testing.assert_allclose(ridge_weights(inputs, inputs @ matrix, 1e-12), matrix, atol=1e-9)
    shrunk = ridge_weights(inputs, inputs @ matrix, 100.0)
    assert np.linalg.norm(shrunk) < 0.05 * np.linalg.norm(matrix)


def test_inputs_that_say_nothing_are_mapped_to_nothing():
    found = ridge_weights(np.zeros((6, 4)), np.ones((6, 2)), 1e-5)
    np.testing.assert_array_equal(found, np.zeros((4, 2)))
