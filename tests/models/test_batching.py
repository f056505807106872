"""Batches and pooling without torch mean the same as with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import ConfigError
from nsmark.models.batching import equal_length_batches, pad_arrays, pool_array

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(lengths, st.sampled_from(["left", "right"]), st.integers(0, 1000), st.integers(0, 20))
def test_pooling_is_that_of_the_encoder(lengths, side, seed, longer):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from nsmark.models.encoder import pool

    rng = np.random.default_rng(seed)
    sequences = [np.full(length, 7, np.int32) for length in lengths]
    ids, mask = pad_arrays(sequences, 0, side, longer)
    assert ids.shape[1] == max(longer, *lengths)
    np.testing.assert_array_equal(mask, ids == 7)
    hidden = rng.standard_normal((*mask.shape, 5)).astype(np.float32)
    for pooling in ("first", "last", "mean", "max"):
        expected = pool(torch.from_numpy(hidden), torch.from_numpy(mask.astype(np.int64)), pooling)
        found = pool_array(hidden, mask, pooling)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_what_stands_on_padding_is_not_read(pooling):
    _, mask = pad_arrays([np.array([1, 2], np.int32), np.array([3], np.int32)], 0, "right")
    hidden = np.ones((2, 2, 3), np.float32)
    hidden[1, 1] = np.nan
    np.testing.assert_array_equal(pool_array(hidden, mask, pooling), np.ones((2, 3)))


def test_unknown_pooling_is_refused():
    with pytest.raises(ConfigError, match="pooling"):
        pool_array(np.ones((1, 1, 1), np.float32), np.ones((1, 1), bool), "weighted")


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 30))
def test_equal_length_batches_hold_every_text_once_and_one_length_each(lengths, budget):
    batches = list(equal_length_batches(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len({lengths[index] for index in batch}) == 1
