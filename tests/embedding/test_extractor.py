from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core.mlp import mlp_forward
from nsmark.embedding.extractor import Extractor


@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(1, 20), min_size=3, max_size=6),
    num_texts=st.integers(1, 6),
)
@settings(max_examples=40, deadline=None)
def test_the_exported_arrays_compute_what_the_network_computes(seed, sizes, num_texts):
    extractor = Extractor(sizes[0], sizes[1:-1], sizes[-1], seed)
    inputs = np.random.default_rng(seed).standard_normal((num_texts, sizes[0])).astype(np.float32)
    with torch.no_grad():
        expected = extractor(torch.from_numpy(inputs)).numpy()
    layers = extractor.to_layers()
    np.testing.assert_allclose(mlp_forward(inputs, layers), expected, atol=1e-5)
    shapes = [(weight.shape, bias.shape) for weight, bias in layers]
    pairs = itertools.pairwise(sizes)
    assert shapes == [((fan_out, fan_in), (fan_out,)) for fan_in, fan_out in pairs]
    assert all(weight.dtype == bias.dtype == np.float32 for weight, bias in layers)


def test_hidden_layers_are_rectified_and_the_last_is_not():
    extractor = Extractor(1, [1], 1, 0)
    with torch.no_grad():
        for layer in extractor.layers:
            layer.weight.fill_(1.0)
            layer.bias.fill_(-1.0)
        found = extractor(torch.tensor([[-5.0], [0.5], [3.0]]))
    assert found.flatten().tolist() == [-1.0, -1.0, 1.0]


def test_the_start_depends_on_the_seed_and_on_nothing_else():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = Extractor(8, [6], 4, 7).to_layers()
        torch.manual_seed(2)
        again = Extractor(8, [6], 4, 7).to_layers()
        other = Extractor(8, [6], 4, 8).to_layers()
    for (weight, bias), (weight2, bias2), (weight3, _) in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(weight, weight2)
        np.testing.assert_array_equal(bias, bias2)
        assert not np.array_equal(weight, weight3)


@pytest.mark.parametrize("fan_in", [1, 4, 100])
def test_the_start_is_uniform_within_the_usual_bound(fan_in):
    ((weight, bias), _) = Extractor(fan_in, [500], 2, 0).to_layers()
    values = np.concatenate([weight.ravel(), bias]) * fan_in**0.5
    assert np.abs(values).max() <= 1 + 1e-6
    assert np.abs(values).max() > 0.95
    assert abs(values.mean()) < 0.1
    assert abs(values.var() - 1 / 3) < 0.05
