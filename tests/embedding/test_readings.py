"""Readings where the outputs are agree with those that verification makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core.derive import readout_matrix, signature_bits, spreading_code
from nsmark.core.extraction import derived_extraction_rate, extraction_rate
from nsmark.embedding.readings import derived_rate_of, extraction_rate_of, mean_cosine_of
from nsmark.embedding.trainer import mean_cosine

signatures = st.binary(min_size=1, max_size=64)
seeds = st.integers(0, 2**32 - 1)
# Both sides of every bound, and the bounds themselves.
EDGES = [-2.0, -1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0]


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def ours(mapped: np.ndarray, signature: bytes, num_bits: int) -> float:
    code = spreading_code(signature, mapped.shape[1])
    bits = signature_bits(signature, num_bits)
    return extraction_rate_of(tensor(mapped), tensor(code), tensor(bits)).item()


# --- extraction ----------------------------------------------------------------------------------


@given(
    signature=signatures,
    seed=seeds,
    num_texts=st.integers(1, 6),
    num_bits=st.integers(1, 20),
    spread_factor=st.integers(1, 6),
)
@settings(max_examples=120, deadline=None)
def test_bits_are_read_as_verification_reads_them(
    signature, seed, num_texts, num_bits, spread_factor
):
    rng = np.random.default_rng(seed)
    mapped = rng.choice(EDGES, (num_texts, spread_factor * num_bits)).astype(np.float32)
    expected = extraction_rate(mapped, signature, num_bits, spread_factor)
    assert ours(mapped, signature, num_bits) == pytest.approx(expected, abs=1e-6)


@given(signature=signatures, seed=seeds, noise=st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_a_noisy_watermark_is_read_as_verification_reads_it(signature, seed, noise):
    rng = np.random.default_rng(seed)
    watermark = np.tile(signature_bits(signature, 16), 3) * spreading_code(signature, 48)
    mapped = (watermark + noise * rng.standard_normal((5, 48))).astype(np.float32)
    expected = extraction_rate(mapped, signature, 16, 3)
    assert ours(mapped, signature, 16) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([1, 1], 1.0),
        ([1, -1], 0.0),  # a tie
        ([1, 0], 0.0),  # a tie with those that say nothing
        ([1, 1, -1], 1.0),
        ([1, 0, -1], 0.0),
        ([0, 0, 1], 0.0),
        ([0, 0, 0], 0.0),
        ([-1, -1, 1], 0.0),
    ],
    ids=str,
)
def test_a_bit_counts_only_with_most_of_its_copies(votes, expected):
    signature, num_bits = b"signature", 8
    length = num_bits * len(votes)
    code, bits = spreading_code(signature, length), signature_bits(signature, num_bits)
    mapped = (np.repeat(votes, num_bits) * np.tile(bits, len(votes)) * code)[None].astype(float)
    assert ours(mapped, signature, num_bits) == expected
    assert extraction_rate(mapped, signature, num_bits, len(votes)) == expected


# --- the derived readout -------------------------------------------------------------------------


def derived(outputs: np.ndarray, signature: bytes, num_bits: int) -> float:
    readout = readout_matrix(signature, num_bits, outputs.shape[1])
    bits = signature_bits(signature, num_bits)[: len(readout)]
    return derived_rate_of(tensor(outputs), tensor(readout), tensor(bits)).item()


@given(
    signature=signatures,
    seed=seeds,
    num_texts=st.integers(1, 6),
    num_bits=st.integers(1, 20),
    output_dim=st.integers(2, 40),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
@settings(max_examples=120, deadline=None)
def test_derived_bits_are_read_as_verification_reads_them(
    signature, seed, num_texts, num_bits, output_dim, scale
):
    rng = np.random.default_rng(seed)
    outputs = scale * rng.standard_normal((num_texts, output_dim))
    outputs[rng.random(num_texts) < 0.3] = 0  # an output that says nothing
    outputs = outputs.astype(np.float32)
    units = outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-30)
    scores = readout_matrix(signature, num_bits, output_dim) @ units.mean(axis=0)
    doubtful = np.count_nonzero((np.abs(scores) < 1e-6) & (scores != 0))
    expected = derived_extraction_rate(outputs, signature, num_bits)
    slack = doubtful / len(scores) + 1e-6
    assert derived(outputs, signature, num_bits) == pytest.approx(expected, abs=slack)


def test_outputs_of_zero_read_nothing_rightly():
    outputs = np.zeros((3, 32), dtype=np.float32)
    assert derived(outputs, b"signature", 16) == 0
    assert derived_extraction_rate(outputs, b"signature", 16) == 0


def test_scores_that_cancel_out_read_nothing_rightly():
    """Two equal entries under signs that differ: the score is zero, and no bit is read."""
    readout = readout_matrix(b"signature", 16, 32)
    for row in range(len(readout)):
        other = int(np.flatnonzero(readout[row] != readout[row, 0])[0])
        outputs = np.zeros((1, 32), dtype=np.float32)
        outputs[0, [0, other]] = 3.0
        expected = derived_extraction_rate(outputs, b"signature", 16)
        assert expected < 1
        assert derived(outputs, b"signature", 16) == pytest.approx(expected, abs=1e-6)


# --- cosines -------------------------------------------------------------------------------------


@given(seed=seeds, num_texts=st.integers(1, 6), output_dim=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_the_mean_cosine_is_that_of_the_outputs_themselves(seed, num_texts, output_dim):
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((2, num_texts, output_dim)).astype(np.float32)
    first[rng.random(num_texts) < 0.2] = 0
    found = mean_cosine_of(tensor(first), tensor(second)).item()
    assert found == pytest.approx(mean_cosine(first, second), abs=1e-5)
