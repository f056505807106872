"""Extraction rates of the trained extractor and of the derived readout."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core import (
    derived_extraction_rate,
    derived_p_value,
    extraction_rate,
    readout_matrix,
    signature_bits,
    watermark_vector,
)
from nsmark.errors import EvidenceError

SIGNATURE = bytes(range(64))


def fair_coin_tail(hits: int, trials: int) -> float:
    return sum(math.comb(trials, k) for k in range(hits, trials + 1)) / 2**trials


# Trained extractor --------------------------------------------------------------------------


def test_the_watermark_vector_is_read_completely() -> None:
    assert extraction_rate(watermark_vector(SIGNATURE), SIGNATURE) == 1.0
    assert extraction_rate(np.tile(watermark_vector(SIGNATURE), (4, 1)), SIGNATURE) == 1.0


def test_the_opposite_vector_and_zeros_are_read_not_at_all() -> None:
    assert extraction_rate(-watermark_vector(SIGNATURE), SIGNATURE) == 0.0
    assert extraction_rate(np.zeros((2, 768)), SIGNATURE) == 0.0


def test_the_rate_is_the_mean_over_texts_of_the_share_of_bits() -> None:
    vector = watermark_vector(SIGNATURE, 16, 3).astype(np.float64)
    outputs = np.stack([vector, vector, -vector])
    outputs[1].reshape(3, 16)[:, :4] = 0.0  # four of sixteen bits lost

    assert extraction_rate(outputs, SIGNATURE, 16, 3) == pytest.approx((1 + 12 / 16 + 0) / 3)


def test_another_signature_reads_a_random_share() -> None:
    outputs = np.tile(watermark_vector(SIGNATURE), (1, 1))
    # Per copy a fair coin, the majority of three a fair coin: 5 standard deviations around ½.
    assert abs(extraction_rate(outputs, bytes(64)) - 0.5) < 5 * 0.5 / math.sqrt(256)


def test_an_empty_batch_is_an_error_and_not_nan() -> None:
    with pytest.raises(EvidenceError):
        extraction_rate(np.zeros((0, 768)), SIGNATURE)


# Derived readout ----------------------------------------------------------------------------


def marked_outputs(num_texts: int, output_dim: int, num_bits: int = 256) -> np.ndarray:
    """Outputs whose mean direction carries every derived bit: Σ bits_i R_i, solved exactly."""
    readout = readout_matrix(SIGNATURE, num_bits, output_dim).astype(np.float64)
    bits = signature_bits(SIGNATURE, num_bits)[: len(readout)]
    direction = np.linalg.pinv(readout) @ bits
    scales = np.random.default_rng(0).uniform(0.1, 10.0, (num_texts, 1))
    return scales * direction


@pytest.mark.parametrize(("output_dim", "num_read"), [(8, 4), (64, 32), (600, 256)])
def test_a_marked_direction_is_read_completely_and_counts_its_bits(
    output_dim: int, num_read: int
) -> None:
    outputs = marked_outputs(3, output_dim)

    assert derived_extraction_rate(outputs, SIGNATURE) == 1.0
    assert derived_p_value(outputs, SIGNATURE) == pytest.approx(0.5**num_read, rel=1e-9)
    assert derived_extraction_rate(-outputs, SIGNATURE) == 0.0
    assert derived_p_value(-outputs, SIGNATURE) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 40), st.integers(1, 24))
def test_rate_and_p_value_agree_with_a_direct_computation(
    seed: int, num_texts: int, output_dim: int, num_bits: int
) -> None:
    outputs = np.random.default_rng(seed).standard_normal((num_texts, output_dim))
    num_read = min(num_bits, output_dim // 2)
    readout = readout_matrix(SIGNATURE, num_bits, output_dim)
    bits = signature_bits(SIGNATURE, num_bits)
    hits = 0
    for i in range(num_read):
        mean = sum(float(readout[i] @ x) / math.sqrt(float(x @ x)) for x in outputs) / num_texts
        hits += mean * bits[i] > 0

    assert derived_extraction_rate(outputs, SIGNATURE, num_bits) == pytest.approx(hits / num_read)
    assert derived_p_value(outputs, SIGNATURE, num_bits) == pytest.approx(
        fair_coin_tail(hits, num_read)
    )


def test_every_output_counts_with_unit_length() -> None:
    # One loud text against two that say the opposite: the majority wins, not the loudest.
    direction = marked_outputs(1, 32)[0]
    outputs = np.stack([1e6 * direction, -direction, -direction])

    assert derived_extraction_rate(outputs, SIGNATURE) == 0.0


def test_a_score_of_zero_counts_as_wrong() -> None:
    direction = marked_outputs(1, 32)[0]

    assert derived_extraction_rate(np.stack([direction, -direction]), SIGNATURE) == 0.0
    assert derived_extraction_rate(np.zeros((3, 32)), SIGNATURE) == 0.0
    assert derived_p_value(np.zeros((3, 32)), SIGNATURE) == 1.0


def test_a_zero_output_among_others_is_no_obstacle() -> None:
    outputs = np.vstack([np.zeros((1, 32)), marked_outputs(2, 32)])

    assert derived_extraction_rate(outputs, SIGNATURE) == 1.0


def test_random_outputs_read_half_the_bits_and_their_p_values_are_valid() -> None:
    rng = np.random.default_rng(1)
    rates, p_values = [], []
    for _ in range(300):  # one model, 300 signatures that know nothing of it
        signature = rng.bytes(64)
        outputs = 1.0 + rng.standard_normal((4, 80))  # not even centred
        rates.append(derived_extraction_rate(outputs, signature))
        p_values.append(derived_p_value(outputs, signature))

    assert abs(np.mean(rates) - 0.5) < 5 * 0.5 / math.sqrt(300 * 40)
    for level in (0.01, 0.05, 0.25):
        allowed = 300 * level + 4 * math.sqrt(300 * level * (1 - level))
        assert np.count_nonzero(np.array(p_values) <= level) <= allowed


@pytest.mark.parametrize(
    "outputs",
    [
        np.zeros((0, 32)),
        np.ones(32),
        np.full((2, 32), np.nan),
        np.full((2, 32), np.inf),
    ],
)
def test_outputs_that_are_no_finite_table_are_refused(outputs: np.ndarray) -> None:
    for read in (derived_extraction_rate, derived_p_value):
        with pytest.raises(EvidenceError):
            read(outputs, SIGNATURE)
