"""Despreading: the decision window, the vote and its ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core import despread, signature_bits, spreading_code, watermark_vector
from nsmark.errors import ConfigError, EvidenceError

BELOW_HALF, ABOVE_HALF = np.nextafter(0.5, 0.0), np.nextafter(0.5, 1.0)
BELOW_THREE_HALVES, ABOVE_THREE_HALVES = np.nextafter(1.5, 1.0), np.nextafter(1.5, 2.0)

problems = st.tuples(
    st.binary(min_size=64, max_size=64),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 10**6),
)


def read_one(*copies: float) -> int:
    """Despread the copies of one bit under a code of ones."""
    return int(despread(np.array(copies), np.ones(len(copies), dtype=np.int64), 1)[0])


@pytest.mark.parametrize(
    ("value", "bit"),
    [
        (1.0, 1),
        (0.5, 0),
        (ABOVE_HALF, 1),
        (BELOW_HALF, 0),
        (1.5, 0),
        (BELOW_THREE_HALVES, 1),
        (ABOVE_THREE_HALVES, 0),
        (0.0, 0),
        (2.0, 0),
        (1e300, 0),
        (np.inf, 0),
        (np.nan, 0),
    ],
)
def test_a_value_counts_only_strictly_between_half_and_three_halves(value: float, bit: int) -> None:
    assert read_one(value) == bit
    assert read_one(-value) == -bit


@pytest.mark.parametrize(
    ("copies", "bit"),
    [
        ((1, 1), 1),
        ((1, -1), 0),
        ((1, 0), 0),  # one vote for +1, one for "nothing": a tie
        ((-1, 0), 0),
        ((0, 0), 0),
        ((1, 1, -1), 1),
        ((1, 1, 0), 1),
        ((-1, -1, 1), -1),
        ((1, 0, 0), 0),  # "nothing" is the most frequent value
        ((-1, 0, 0), 0),
        ((1, -1, 0), 0),
        ((1, 1, -1, -1), 0),
        ((1, 1, 0, 0), 0),
        ((1, 1, -1, 0), 1),  # most frequent, though no majority
        ((-1, -1, 1, 0), -1),
        ((1, 1, 0, 0, -1), 0),
        ((1, 1, 1, 0, 0), 1),
    ],
)
def test_a_bit_is_the_most_frequent_value_and_a_tie_reads_as_nothing(
    copies: tuple[float, ...], bit: int
) -> None:
    assert read_one(*copies) == bit


@settings(max_examples=100, deadline=None)
@given(problems)
def test_despreading_the_spread_signature_gives_its_bits(problem: tuple) -> None:
    signature, num_bits, spread_factor, _ = problem
    code = spreading_code(signature, num_bits * spread_factor)

    bits = despread(watermark_vector(signature, num_bits, spread_factor), code, num_bits)

    assert bits.tolist() == signature_bits(signature, num_bits).tolist()


@settings(max_examples=100, deadline=None)
@given(problems)
def test_noise_below_the_decision_margin_changes_no_bit(problem: tuple) -> None:
    signature, num_bits, spread_factor, seed = problem
    code = spreading_code(signature, num_bits * spread_factor)
    noise = np.random.default_rng(seed).uniform(-0.4999, 0.4999, (3, len(code)))

    bits = despread(watermark_vector(signature, num_bits, spread_factor) + noise, code, num_bits)

    assert (bits == signature_bits(signature, num_bits)).all()


@settings(max_examples=50, deadline=None)
@given(problems)
def test_any_minority_of_destroyed_copies_changes_no_bit(problem: tuple) -> None:
    signature, num_bits, spread_factor, seed = problem
    rng = np.random.default_rng(seed)
    code = spreading_code(signature, num_bits * spread_factor)
    outputs = watermark_vector(signature, num_bits, spread_factor).astype(np.float64)
    copies = outputs.reshape(spread_factor, num_bits)
    for bit in range(num_bits):
        lost = rng.permutation(spread_factor)[: (spread_factor - 1) // 2]
        copies[lost, bit] = rng.choice([-1.0, 0.0, 1.0, 7.0], len(lost))

    assert (despread(outputs, code, num_bits) == signature_bits(signature, num_bits)).all()


def test_the_copies_of_a_bit_lie_num_bits_apart() -> None:
    code = np.ones(6, dtype=np.int64)

    # Bits 0 and 1 have copies (0, 2, 4) and (1, 3, 5).
    assert despread(np.array([1, -1, 1, -1, 0, -1.0]), code, 2).tolist() == [1, -1]


def test_a_batch_is_read_row_by_row() -> None:
    rng = np.random.default_rng(0)
    outputs, code = rng.uniform(-2, 2, (5, 24)), spreading_code(bytes(64), 24)

    batch = despread(outputs, code, 8)

    assert batch.shape == (5, 8)
    assert batch.dtype == np.int64
    assert all((batch[i] == despread(outputs[i], code, 8)).all() for i in range(5))


def test_half_precision_outputs_are_decided_in_double_precision() -> None:
    assert despread(np.array([0.5, 1.5, 1.0], dtype=np.float16), np.ones(3, int), 3).tolist() == [
        0,
        0,
        1,
    ]


@pytest.mark.parametrize("num_bits", [0, -1, 5, 24])
def test_a_number_of_bits_that_does_not_divide_the_code_is_refused(num_bits: int) -> None:
    with pytest.raises(ConfigError, match="num_bits"):
        despread(np.zeros(12), np.ones(12, dtype=np.int64), num_bits)


def test_outputs_of_another_width_than_the_code_are_refused() -> None:
    with pytest.raises(EvidenceError, match="11 entries, the code has 12"):
        despread(np.zeros((2, 11)), np.ones(12, dtype=np.int64), 4)
