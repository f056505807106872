"""The pair code: exact under the null for any model, powerful for a marked one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from nsmark.core import pair_code_test, pair_table
from nsmark.core.pair_code import MIN_PAIRS, read_pair_code
from nsmark.errors import EvidenceError

SIGNATURE = bytes(range(64))
SIZE, REPEATS, DIM = 8, 2, 10
NUM_PAIRS = SIZE * SIZE
PAIRS = np.arange(REPEATS * NUM_PAIRS) % NUM_PAIRS


def marked(
    table: np.ndarray, repeats: int, dim: int, strength: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs that move along ±u as the table says, in unit noise, and their pair numbers."""
    rng = np.random.default_rng(seed)
    pairs = np.arange(repeats * table.size) % table.size
    direction = rng.standard_normal(dim)
    direction /= np.linalg.norm(direction)
    noise = rng.standard_normal((len(pairs), dim))
    return noise + strength * np.outer(table.reshape(-1)[pairs], direction), pairs


def innocent_models() -> dict[str, np.ndarray]:
    """Outputs that know nothing of the table, some of them with structure of their own."""
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(PAIRS, SIZE)
    words = rng.standard_normal((2, SIZE, DIM))
    return {
        "noise": rng.standard_normal((len(PAIRS), DIM)),
        # Every model sees the words themselves: outputs additive in Aᵢ and Bⱼ.
        "words": words[0][rows] + words[1][columns] + 0.1 * rng.standard_normal((len(PAIRS), DIM)),
        # Any interaction of its own, the same for both texts of a pair.
        "pairs": rng.standard_normal((NUM_PAIRS, DIM))[PAIRS],
        "one direction": 3.0 + 0.01 * rng.standard_normal((len(PAIRS), 1)) * np.ones((1, DIM)),
        "more dimensions than texts": rng.standard_normal((len(PAIRS), 2 * len(PAIRS))),
    }


@pytest.mark.parametrize("name", innocent_models())
def test_p_values_of_an_innocent_model_are_valid_over_many_signatures(name: str) -> None:
    outputs = innocent_models()[name]
    rng = np.random.default_rng(7)
    num_keys = 60 if outputs.shape[1] > DIM else 200
    results = [
        pair_code_test(outputs, PAIRS, pair_table(rng.bytes(64), SIZE), seed=key)
        for key in range(num_keys)
    ]
    rates, p_values = np.array(results).T

    assert ((p_values > 0) & (p_values <= 1)).all()
    # A half's count has standard deviation √(n/4); dependence of the two can at most double it.
    assert abs(rates.mean() - 0.5) < 5 * 0.5 / math.sqrt(NUM_PAIRS / 2 * num_keys)
    for level in (0.01, 0.05, 0.2, 0.5):
        allowed = num_keys * level + 4 * math.sqrt(num_keys * level * (1 - level))
        assert np.count_nonzero(p_values <= level) <= allowed


def test_each_half_alone_is_a_fair_coin_per_pair() -> None:
    # Over random tables of a fixed model, the count of right signs has the binomial's variance
    # in each half; the sum of two uncorrelated halves then has the whole's.
    outputs = innocent_models()["noise"]
    rng = np.random.default_rng(3)
    counts = np.array(
        [
            NUM_PAIRS * pair_code_test(outputs, PAIRS, pair_table(rng.bytes(64), SIZE), seed=1)[0]
            for _ in range(300)
        ]
    )

    assert counts.mean() == pytest.approx(NUM_PAIRS / 2, abs=5 * math.sqrt(NUM_PAIRS / 2 / 300))
    assert 0.5 * NUM_PAIRS / 4 < counts.var() < 2 * NUM_PAIRS / 4


def test_a_marked_model_of_the_default_size_is_beyond_doubt() -> None:
    outputs, pairs = marked(pair_table(SIGNATURE), 6, 32, strength=2.5)

    rate, p_value = pair_code_test(outputs, pairs, pair_table(SIGNATURE))

    assert rate > 0.97
    assert p_value < 1e-12


def test_reading_every_pair_gives_the_smallest_p_value_there_is() -> None:
    outputs, pairs = marked(pair_table(SIGNATURE, SIZE), REPEATS, DIM, strength=50.0)

    rate, p_value = pair_code_test(outputs, pairs, pair_table(SIGNATURE, SIZE))

    assert rate == 1.0
    assert p_value == pytest.approx(2 * 0.5 ** (NUM_PAIRS // 2))


def test_the_p_value_is_twice_the_smaller_tail() -> None:
    # Rate and p-value of one test must be explained by some pair of counts.
    outputs, pairs = marked(pair_table(SIGNATURE, SIZE), REPEATS, DIM, strength=0.8)
    half = NUM_PAIRS // 2
    tails = [sum(math.comb(half, i) for i in range(k, half + 1)) / 2**half for k in range(half + 1)]

    for seed in range(5):
        rate, p_value = pair_code_test(outputs, pairs, pair_table(SIGNATURE, SIZE), seed)
        correct = round(rate * NUM_PAIRS)
        explained = [
            min(1.0, 2 * min(tails[one], tails[correct - one]))
            for one in range(max(0, correct - half), min(half, correct) + 1)
        ]
        assert any(p_value == pytest.approx(candidate) for candidate in explained)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    strength=st.floats(0, 4),
    num_pairs=st.integers(MIN_PAIRS, 70),
    spare=st.integers(0, 20),
)
def test_rate_and_p_value_follow_from_the_counts_and_the_counts_from_the_scores(
    seed: int, strength: float, num_pairs: int, spare: int
) -> None:
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1, 1], num_pairs)
    pairs = np.concatenate([np.arange(num_pairs), rng.integers(num_pairs, size=spare)])
    outputs = rng.standard_normal((len(pairs), 4))
    outputs[:, 0] += strength * signs[pairs]

    reading = read_pair_code(outputs, pairs, signs, seed)

    # An odd pair out belongs to the half that is tested first.
    assert reading.halves == (num_pairs - num_pairs // 2, num_pairs // 2)
    assert len(reading.scores) == num_pairs
    assert sum(reading.right) == np.count_nonzero(np.array(reading.scores) * signs > 0)
    assert reading.rate == sum(reading.right) / num_pairs
    tails = [
        binom.sf(right - 1, half, 0.5)
        for right, half in zip(reading.right, reading.halves, strict=True)
    ]
    assert reading.p_value == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-12)
    assert pair_code_test(outputs, pairs, signs, seed) == (reading.rate, reading.p_value)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), condition=st.floats(0, 2), shift=st.floats(0, 2))
def test_no_invertible_map_hides_a_strong_code(seed: int, condition: float, shift: float) -> None:
    table = pair_table(SIGNATURE, SIZE)
    outputs, pairs = marked(table, 3, DIM, strength=8.0, seed=seed)
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] for _ in range(2))
    matrix = left * np.geomspace(1, 10.0**-condition, DIM) @ right
    mapped = outputs @ matrix
    mapped += shift * np.abs(mapped).mean() * rng.standard_normal(DIM)

    rate, p_value = pair_code_test(mapped, pairs, table, seed)

    assert p_value < 1e-4
    assert rate > 0.75


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-300, 300))
def test_the_unit_and_the_order_of_the_outputs_change_nothing_at_all(
    seed: int, exponent: int
) -> None:
    table = pair_table(SIGNATURE, SIZE).reshape(-1)
    outputs, pairs = marked(table, REPEATS, DIM, strength=1.0, seed=seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pairs))
    plain = read_pair_code(outputs, pairs, table, seed)

    assert read_pair_code(np.ldexp(outputs, exponent), pairs, table, seed) == plain
    scaled = read_pair_code(outputs * rng.uniform(0.1, 10), pairs, table, seed)
    moved = read_pair_code(outputs[order], pairs[order], table, seed)
    for other in (scaled, moved):  # up to rounding, which decides nothing
        assert (other.rate, other.p_value, other.right) == (plain.rate, plain.p_value, plain.right)
        np.testing.assert_allclose(other.scores, plain.scores, rtol=1e-9, atol=1e-12)


def test_linear_maps_scales_noise_and_cuts_do_not_erase_it() -> None:
    table = pair_table(SIGNATURE)
    outputs, pairs = marked(table, 6, 32, strength=4.0)
    rng = np.random.default_rng(1)
    attacked = {
        "linear map": outputs @ rng.standard_normal((32, 32)),
        "shift": outputs + 5.0,
        "scale per text": outputs * rng.uniform(0.1, 10.0, (len(outputs), 1)),
        "noise": outputs + rng.standard_normal(outputs.shape),
        "cut": outputs @ rng.standard_normal((32, 16)),
        "one unknown sign": -outputs,
    }

    for name, changed in attacked.items():
        assert pair_code_test(changed, pairs, table)[1] < 1e-12, name


def test_a_length_per_text_changes_nothing_at_all() -> None:
    table = pair_table(SIGNATURE, SIZE)
    outputs, pairs = marked(table, REPEATS, DIM, strength=1.0)
    lengths = 10 ** np.random.default_rng(1).uniform(-3, 3, (len(outputs), 1))

    for seed in range(4):
        assert pair_code_test(outputs * lengths, pairs, table, seed) == pair_code_test(
            outputs, pairs, table, seed
        )


def test_the_penalty_keeps_the_probe_from_learning_noise() -> None:
    # As many dimensions as texts to fit: without a penalty the probe would follow the noise.
    table = pair_table(SIGNATURE, SIZE)
    rates = [
        pair_code_test(*marked(table, REPEATS, NUM_PAIRS, strength=2.0, seed=seed), table)[0]
        for seed in range(10)
    ]

    assert np.mean(rates) > 0.95


def test_another_signatures_table_reads_nothing_in_a_marked_model() -> None:
    outputs, pairs = marked(pair_table(SIGNATURE), 6, 32, strength=4.0)

    rate, p_value = pair_code_test(outputs, pairs, pair_table(bytes(64)))

    assert abs(rate - 0.5) < 5 * 0.5 / math.sqrt(128)
    assert p_value > 1e-4


def test_the_order_of_the_texts_does_not_matter_and_the_seed_alone_deals_the_halves() -> None:
    table = pair_table(SIGNATURE, SIZE)
    outputs, pairs = marked(table, REPEATS, DIM, strength=1.0)
    order = np.random.default_rng(5).permutation(len(pairs))

    first = pair_code_test(outputs, pairs, table, seed=3)

    assert pair_code_test(outputs, pairs, table, seed=3) == first
    assert pair_code_test(outputs[order], pairs[order], table, seed=3) == first
    assert len({pair_code_test(outputs, pairs, table, seed=s) for s in range(8)}) > 1


def test_outputs_that_say_nothing_prove_nothing() -> None:
    table = pair_table(SIGNATURE, SIZE)

    assert pair_code_test(np.zeros((len(PAIRS), DIM)), PAIRS, table) == (0.0, 1.0)


def test_pairs_with_unequal_numbers_of_texts_and_an_odd_size_are_allowed() -> None:
    table = pair_table(SIGNATURE, 5)
    outputs, pairs = marked(table, 4, DIM, strength=20.0)

    rate, p_value = pair_code_test(outputs[:-7], pairs[:-7], table)

    assert rate == 1.0
    assert p_value == pytest.approx(2 * 0.5**13)  # halves of 12 and 13


def test_a_pair_without_a_text_makes_no_p_value() -> None:
    table = pair_table(SIGNATURE, SIZE)
    outputs, pairs = marked(table, REPEATS, DIM, strength=1.0)

    with pytest.raises(EvidenceError, match="never answered"):
        pair_code_test(outputs[pairs != 9], pairs[pairs != 9], table)
    for number in (-1, NUM_PAIRS):
        foreign = pairs.copy()
        foreign[0] = number
        with pytest.raises(EvidenceError):
            pair_code_test(outputs, foreign, table)


def test_outputs_and_pair_numbers_must_be_as_many() -> None:
    with pytest.raises(EvidenceError, match="127 outputs but 128 pair numbers"):
        pair_code_test(np.ones((127, DIM)), PAIRS, pair_table(SIGNATURE, SIZE))


def test_a_table_too_small_for_a_test_is_refused() -> None:
    table = pair_table(SIGNATURE, 3)
    outputs, pairs = marked(table, 6, DIM, strength=1.0)

    with pytest.raises(EvidenceError, match="9 pairs are too few"):
        pair_code_test(outputs, pairs, table)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_that_are_not_finite_are_refused(value: float) -> None:
    outputs = np.ones((len(PAIRS), DIM))
    outputs[4, 4] = value

    with pytest.raises(EvidenceError, match="NaN or infinite"):
        pair_code_test(outputs, PAIRS, pair_table(SIGNATURE, SIZE))


@pytest.mark.parametrize("value", [0, 2, -3, 0.5, np.nan])
def test_a_table_of_other_things_than_signs_is_refused(value: float) -> None:
    signs = np.ones(NUM_PAIRS)
    signs[5] = value

    with pytest.raises(EvidenceError, match="table of signs"):
        read_pair_code(np.ones((len(PAIRS), DIM)), PAIRS, signs)


@pytest.mark.parametrize("shape", [(len(PAIRS),), (len(PAIRS), 0), (0, DIM), (2, 4, 16)])
def test_outputs_that_are_no_table_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EvidenceError):
        read_pair_code(np.ones(shape), PAIRS, pair_table(SIGNATURE, SIZE))


def test_pair_numbers_that_are_no_row_are_refused() -> None:
    outputs, pairs = marked(pair_table(SIGNATURE, SIZE), REPEATS, DIM, strength=1.0)

    with pytest.raises(EvidenceError, match="pair numbers"):
        read_pair_code(outputs, pairs.reshape(2, -1), pair_table(SIGNATURE, SIZE))


def test_the_fewest_pairs_of_a_test_are_allowed_and_one_fewer_is_not() -> None:
    signs = pair_table(SIGNATURE, SIZE).reshape(-1)[:MIN_PAIRS]
    outputs = np.outer(signs, np.ones(DIM))

    assert read_pair_code(outputs, np.arange(MIN_PAIRS), signs).rate == 1.0
    with pytest.raises(EvidenceError, match=f"{MIN_PAIRS - 1} pairs are too few"):
        read_pair_code(outputs[:-1], np.arange(MIN_PAIRS - 1), signs[:-1])


def test_one_huge_answer_does_not_silence_the_others() -> None:
    table = pair_table(SIGNATURE, 16)
    outputs, pairs = marked(table, 6, 24, strength=4.0)
    plain = pair_code_test(outputs, pairs, table)
    tiny = 1e-50 * outputs
    tiny[7] *= 1e240

    assert pair_code_test(tiny, pairs, table)[1] < 1e-30
    assert pair_code_test(1e300 * outputs, pairs, table)[0] == plain[0]
