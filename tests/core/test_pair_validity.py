"""The p-value of the pair code holds for every model that does not know the signature.

Whatever a model answers, and if it were built to deceive: as long as it was made without the
table, the signs of the half that is tested are fair coins to the probe.
"""

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import binom, chi2

from nsmark.core import pair_table
from nsmark.core.pair_code import read_pair_code

SIZE, REPEATS, DIM = 6, 2, 8
NUM_PAIRS = SIZE * SIZE
HALF = NUM_PAIRS // 2
PAIRS = np.arange(REPEATS * NUM_PAIRS) % NUM_PAIRS
NUM_TEXTS = len(PAIRS)
NUM_SIGNATURES = 160
Rng = np.random.Generator


def spec_deal(count: int, seed: int) -> list[int]:
    """The pairs as the seed deals them, written down a second time."""
    return sorted(
        range(count),
        key=lambda pair: hashlib.sha256(f"nsmark/v1/deal/{seed}/{pair}".encode()).hexdigest(),
    )


# --- why it holds, exactly ---

# Nothing that a model could answer: zeros, huge and tiny numbers, few values, one column.
any_outputs = hnp.arrays(
    np.float64,
    st.tuples(st.just(NUM_TEXTS), st.integers(1, 5)),
    elements=st.one_of(st.integers(-2, 2).map(float), st.floats(-1e9, 1e9)),
)
any_signs = hnp.arrays(np.int64, NUM_PAIRS, elements=st.sampled_from([-1, 1]))


@settings(max_examples=60, deadline=None)
@given(outputs=any_outputs, signs=any_signs, others=any_signs, seed=st.integers(0, 2**32 - 1))
def test_what_is_read_of_a_half_does_not_depend_on_the_signs_of_that_half(
    outputs: np.ndarray, signs: np.ndarray, others: np.ndarray, seed: int
) -> None:
    # This is the whole proof: who does not know a half's signs reads them as coins fall.
    order = spec_deal(NUM_PAIRS, seed)
    first = read_pair_code(outputs, PAIRS, signs, seed)
    for tested in (order[:HALF], order[HALF:]):
        changed = signs.copy()
        changed[tested] = others[tested]

        second = read_pair_code(outputs, PAIRS, changed, seed)

        assert np.array(second.scores)[tested].tolist() == np.array(first.scores)[tested].tolist()


def test_the_deal_is_frozen() -> None:
    # Halves depend on the seed alone; a change would give every old report another p-value.
    rng = np.random.default_rng(0)
    outputs, signs = rng.standard_normal((NUM_TEXTS, DIM)), rng.choice([-1, 1], NUM_PAIRS)
    first = np.array(read_pair_code(outputs, PAIRS, signs, seed=7).scores)
    for pair in range(NUM_PAIRS):
        changed = signs.copy()
        changed[pair] *= -1
        second = np.array(read_pair_code(outputs, PAIRS, changed, seed=7).scores)
        order = spec_deal(NUM_PAIRS, 7)
        half = order[:HALF] if pair in order[:HALF] else order[HALF:]
        assert np.flatnonzero(first == second).tolist() == sorted(half)
    assert spec_deal(16, 0) == [1, 12, 4, 8, 6, 14, 0, 15, 7, 9, 2, 10, 3, 13, 5, 11]
    assert spec_deal(16, 4_000_000_000) == [6, 14, 11, 13, 4, 15, 5, 1, 8, 0, 9, 2, 3, 12, 7, 10]


# --- and in numbers, for models built to deceive ---


def one_hot(rng: Rng) -> np.ndarray:
    return np.eye(NUM_PAIRS)[PAIRS]


def of_another_signature(rng: Rng) -> np.ndarray:
    signs = pair_table(rng.bytes(64), SIZE).reshape(-1)[PAIRS]
    return rng.standard_normal((NUM_TEXTS, DIM)) + 5 * np.outer(signs, np.ones(DIM))


def of_many_signatures(rng: Rng) -> np.ndarray:
    tables = [pair_table(rng.bytes(64), SIZE).reshape(-1) for _ in range(NUM_PAIRS)]
    return np.array(tables).T[PAIRS] @ rng.standard_normal((NUM_PAIRS, NUM_PAIRS))


def words_of_the_code(rng: Rng) -> np.ndarray:
    rows, columns = np.divmod(PAIRS, SIZE)
    return np.hstack([np.eye(SIZE)[rows], np.eye(SIZE)[columns]])


def products_of_words(rng: Rng) -> np.ndarray:
    """Low rank in the table: what most matrices that people make look like."""
    rows, columns = np.divmod(PAIRS, SIZE)
    left, right = rng.standard_normal((2, SIZE, 2))
    return left[rows] * right[columns]


DECEIVERS: dict[str, Callable[[Rng], np.ndarray]] = {
    "low rank": lambda rng: (
        rng.standard_normal((NUM_TEXTS, 2)) @ rng.standard_normal((2, DIM))
        + 1e-9 * rng.standard_normal((NUM_TEXTS, DIM))
    ),
    "one dimension": lambda rng: rng.standard_normal((NUM_TEXTS, 1)),
    "two dimensions, lengths far apart": lambda rng: (
        rng.standard_normal((NUM_TEXTS, 2)) * 10.0 ** rng.uniform(-6, 6, (NUM_TEXTS, 1))
    ),
    "heavy tails": lambda rng: rng.standard_cauchy((NUM_TEXTS, DIM)) ** 3,
    "pair number, one-hot": one_hot,
    "pair number, as a number": lambda rng: np.column_stack([PAIRS, np.ones(NUM_TEXTS)]),
    "pair number, in bits": lambda rng: (PAIRS[:, None] >> np.arange(6) & 1) * 2.0 - 1,
    "equal along each row": lambda rng: rng.standard_normal((SIZE, DIM))[PAIRS // SIZE],
    "equal along each column": lambda rng: rng.standard_normal((SIZE, DIM))[PAIRS % SIZE],
    "both words, one-hot": words_of_the_code,
    "products of words": products_of_words,
    "one vector, its sign by chance": lambda rng: (
        rng.choice([-1.0, 1.0], (NUM_TEXTS, 1)) * rng.standard_normal(DIM)
    ),
    "a sign for each text and dimension": lambda rng: rng.choice([-1.0, 1.0], (NUM_TEXTS, DIM)),
    "another signature's code": of_another_signature,
    "many signatures' codes": of_many_signatures,
}


@pytest.mark.parametrize("name", DECEIVERS)
def test_no_model_made_without_the_table_gets_small_p_values_too_often(name: str) -> None:
    rng = np.random.default_rng(list(name.encode()))
    outputs = DECEIVERS[name](rng)
    readings = [
        read_pair_code(outputs, PAIRS, pair_table(rng.bytes(64), SIZE).reshape(-1), seed)
        for seed in range(NUM_SIGNATURES)
    ]
    p_values = np.array([reading.p_value for reading in readings])
    counts = np.array([reading.right for reading in readings])

    assert {reading.halves for reading in readings} == {(HALF, HALF)}
    for level in (0.5, 0.1, 0.05, 0.01):
        spread = math.sqrt(NUM_SIGNATURES * level * (1 - level))
        assert np.count_nonzero(p_values <= level) <= NUM_SIGNATURES * level + 4 * spread
    silent = [np.count_nonzero(np.array(reading.scores) == 0) for reading in readings]
    if max(silent) > 0:  # a score of zero counts as wrong, which only helps the accused
        assert (counts.mean(axis=0) <= HALF / 2 + 4 * math.sqrt(HALF / 4 / NUM_SIGNATURES)).all()
        return
    for half in counts.T:
        assert abs(half.mean() - HALF / 2) < 4 * math.sqrt(HALF / 4 / NUM_SIGNATURES)
        # The variance of a binomial, within four standard errors of a sample's.
        assert half.var() == pytest.approx(HALF / 4, rel=4 * math.sqrt(2 / NUM_SIGNATURES))
        assert fits_binomial(half)


def fits_binomial(counts: np.ndarray, level: float = 1e-4) -> bool:
    """χ² of counts against the binomial, in bins of at least five expected."""
    edges = [-1, 6, 7, 8, 9, 10, 11, HALF]
    expected = len(counts) * np.diff(binom.cdf(edges, HALF, 0.5))
    assert expected.min() >= 5
    found = np.histogram(counts, bins=np.array(edges) + 0.5)[0]
    statistic = ((found - expected) ** 2 / expected).sum()
    return bool(chi2.sf(statistic, len(expected) - 1) > level)


def test_the_test_of_counts_would_see_a_probe_that_peeps() -> None:
    # One sign of the tested half in six known: the bounds above would not hold.
    rng = np.random.default_rng(0)
    peeping = rng.binomial(HALF, 0.5 + 0.5 / 6, NUM_SIGNATURES)

    assert not fits_binomial(peeping)


@pytest.mark.parametrize("seed", range(3))
def test_a_model_may_be_chosen_for_the_signature_it_reads_best_only_by_trying(seed: int) -> None:
    # The best of so many tries has about the p-value that so many tries give, and no less.
    rng = np.random.default_rng(seed)
    signs = pair_table(rng.bytes(64), SIZE).reshape(-1)
    best = min(
        read_pair_code(rng.standard_normal((NUM_TEXTS, DIM)), PAIRS, signs, seed).p_value
        for _ in range(100)
    )

    assert 1e-6 < best < 0.2
