"""Betting on the signs of a pair code: a fair game for innocent models, won by marked ones."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nsmark.core import pair_code_test, pair_table, pair_wager
from nsmark.core.pair_wager import PairWager, log_capitals, wager_on_pairs
from nsmark.errors import EvidenceError

SIGNATURE = bytes(range(64))
SIZE, REPEATS, DIM = 8, 2, 10
NUM_PAIRS = SIZE * SIZE
PAIRS = np.arange(REPEATS * NUM_PAIRS) % NUM_PAIRS


def marked(
    table: np.ndarray, strength: float, heard: np.ndarray | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs to six texts a pair: what the words say, noise, and the table along one direction.

    Args:
        table: Of signs.
        strength: Of the table.
        heard: Which of the words, rows first, reach the model; by default all.
        seed: Of everything else.
    """
    size = len(table)
    rng = np.random.default_rng(seed)
    pairs = np.arange(6 * size**2) % size**2
    rows, columns = np.divmod(pairs, size)
    heard = np.ones(2 * size, dtype=bool) if heard is None else heard
    words = 2.0 * rng.standard_normal((2 * size, 24)) * heard[:, None]
    direction = np.linalg.qr(rng.standard_normal((24, 1)))[0][:, 0]
    both = heard[rows] & heard[size + columns]
    signs = table.reshape(-1)[pairs] * both
    outputs = words[rows] + words[size + columns] + 3.0 * rng.standard_normal((len(pairs), 24))
    return outputs + 3.0 * strength * np.outer(signs, direction), pairs


# --- why it holds, exactly ---


@settings(max_examples=25, deadline=None)
@given(kernel=hnp.arrays(np.float64, (7, 7), elements=st.floats(-1e6, 1e6)))
def test_every_way_of_betting_is_a_fair_game(kernel: np.ndarray) -> None:
    # Over all tables there are, and whatever a model answers, the mean of the capital stays 1.
    capitals = [
        np.exp(log_capitals(kernel, np.array(signs)))
        for signs in itertools.product([-1.0, 1.0], repeat=7)
    ]

    assert np.mean(capitals, axis=0) == pytest.approx(np.ones(len(capitals[0])), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    kernel=hnp.arrays(np.float64, (12, 12), elements=st.floats(-1e3, 1e3)),
    signs=hnp.arrays(np.float64, 12, elements=st.sampled_from([-1.0, 1.0])),
    known=st.integers(1, 11),
)
def test_a_stake_sees_the_signs_before_it_and_no_others(
    kernel: np.ndarray, signs: np.ndarray, known: int
) -> None:
    others = np.concatenate([signs[:known], -signs[known:]])

    first, second = log_capitals(kernel[:known, :known], signs[:known]), []
    for table in (signs, others):
        after = log_capitals(kernel[: known + 1, : known + 1], table[: known + 1])
        second.append(np.exp(after - first))

    # Both outcomes of the next sign: what one wins the other loses.
    assert second[0] + second[1] == pytest.approx(np.full(len(first), 2.0), rel=1e-9)


@pytest.mark.parametrize("name", ["words", "heavy tails", "one vector", "unequally often"])
def test_signs_take_no_part_in_what_stakes_are_made_of(name: str, monkeypatch) -> None:
    rng = np.random.default_rng(2)
    pairs = PAIRS
    if name == "one vector":
        outputs = rng.choice([-1.0, 1.0], (len(PAIRS), 1)) * rng.standard_normal(DIM)
    elif name == "unequally often":
        pairs = np.sort(np.concatenate([PAIRS, rng.integers(0, 5, 300)]))
        outputs = rng.standard_normal((len(pairs), DIM))
    else:
        outputs = innocent_models()[name]
    seen: list[list[bytes]] = []

    def spy(kernel: np.ndarray, signs: np.ndarray) -> np.ndarray:
        seen[-1].append(kernel.tobytes())
        return log_capitals(kernel, signs)

    monkeypatch.setattr(pair_wager, "log_capitals", spy)
    for signature in (SIGNATURE, bytes(64)):
        seen.append([])
        wager_on_pairs(outputs, pairs, pair_table(signature, SIZE).reshape(-1), SIZE)

    assert seen[0] == seen[1]
    assert len(seen[0]) == 8 * 8 * 5


def innocent_models() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(PAIRS, SIZE)
    words = rng.standard_normal((2, SIZE, DIM))
    left, right = rng.standard_normal((2, SIZE, 2))
    return {
        "noise": rng.standard_normal((len(PAIRS), DIM)),
        "words": words[0][rows] + words[1][columns] + 0.1 * rng.standard_normal((len(PAIRS), DIM)),
        "pairs": rng.standard_normal((NUM_PAIRS, DIM))[PAIRS],
        "pair number, one-hot": np.eye(NUM_PAIRS)[PAIRS],
        "products of words": left[rows] * right[columns],
        "another signature's code": rng.standard_normal((len(PAIRS), DIM))
        + 5 * np.outer(pair_table(bytes(64), SIZE).reshape(-1)[PAIRS], np.ones(DIM)),
        "heavy tails": rng.standard_cauchy((len(PAIRS), DIM)) ** 3,
        "more dimensions than texts": rng.standard_normal((len(PAIRS), 2 * len(PAIRS))),
    }


@pytest.mark.parametrize("name", innocent_models())
def test_innocent_models_win_nothing_on_average_and_seldom_much(name: str) -> None:
    outputs = innocent_models()[name]
    rng = np.random.default_rng(list(name.encode()))
    wagers = [
        wager_on_pairs(outputs, PAIRS, pair_table(rng.bytes(64), SIZE).reshape(-1), SIZE, number)
        for number in range(60)
    ]
    for level in (0.1, 0.01):
        expected = level * len(wagers)
        found = sum(wager.p_value <= level for wager in wagers)
        assert found <= expected + 4 * math.sqrt(expected)


# --- what it is for ---


def test_a_marked_model_is_told_beyond_any_doubt():
    table = pair_table(SIGNATURE, 16)
    outputs, pairs = marked(table, 2.0)

    wager = wager_on_pairs(outputs, pairs, table.reshape(-1), 16)

    assert 60 < wager.decades < 77  # all that 256 signs could win
    assert wager.p_value == float(f"1e-{wager.decades}")


def test_no_more_is_told_than_powers_of_ten():
    # The exact capital is a fingerprint of the table: who tries tables would find it.
    rng = np.random.default_rng(0)
    outputs, pairs = marked(pair_table(SIGNATURE, 16), 2.0)
    found = set()
    for _ in range(40):
        turned = pair_table(SIGNATURE, 16).reshape(-1) * np.where(rng.random(256) < 0.02, -1, 1)
        found.add(wager_on_pairs(outputs, pairs, turned, 16))
    assert all(isinstance(wager.decades, int) for wager in found)
    assert len(found) < 25


@pytest.mark.parametrize("num_heard", [26, 22, 19])
def test_words_that_a_filter_takes_out_do_not_drown_the_others(num_heard: int) -> None:
    table = pair_table(SIGNATURE, 16)
    heard = np.random.default_rng(1).permutation(32) < num_heard
    outputs, pairs = marked(table, 2.0, heard)

    counted = pair_code_test(outputs, pairs, table)[1]
    wager = wager_on_pairs(outputs, pairs, table.reshape(-1), 16)

    assert wager.p_value < 1e-15
    if num_heard < 26:
        assert counted > 1e-12


def test_words_that_nobody_hears_win_nothing():
    table = pair_table(SIGNATURE, 16)
    outputs, pairs = marked(table, 2.0, np.zeros(32, dtype=bool))

    assert wager_on_pairs(outputs, pairs, table.reshape(-1), 16).p_value > 0.01


def test_another_table_of_the_same_words_wins_nothing():
    outputs, pairs = marked(pair_table(SIGNATURE, 16), 2.0)
    other = pair_table(bytes(64), 16).reshape(-1)

    assert wager_on_pairs(outputs, pairs, other, 16).p_value > 0.01


# --- what does not matter ---


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-40, 40))
def test_order_of_the_texts_size_and_rotations_do_not_matter(seed: int, exponent: int) -> None:
    table = pair_table(SIGNATURE, SIZE)
    outputs, pairs = marked(table, 1.5, seed=seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pairs))
    rotation = np.linalg.qr(rng.standard_normal((24, 24)))[0]

    first = wager_on_pairs(outputs, pairs, table.reshape(-1), SIZE, seed)

    for changed, numbers in (
        (np.ldexp(outputs, exponent), pairs),
        (outputs[order], pairs[order]),
        (outputs @ rotation, pairs),
    ):
        again = wager_on_pairs(changed, numbers, table.reshape(-1), SIZE, seed)
        # Equal but for rounding, which may lie at the edge of a power of ten.
        assert abs(again.decades - first.decades) <= 1
        assert first.decades >= 5


def test_same_seed_same_result_and_other_seeds_other_orders():
    table = pair_table(SIGNATURE, SIZE).reshape(-1)
    outputs, pairs = marked(pair_table(SIGNATURE, SIZE), 1.0)

    first = wager_on_pairs(outputs, pairs, table, SIZE, 3)

    assert wager_on_pairs(outputs, pairs, table, SIZE, 3) == first
    assert len({wager_on_pairs(outputs, pairs, table, SIZE, s) for s in range(12)}) > 1


def test_the_first_signs_of_a_table_can_be_bet_on_alone():
    table = pair_table(SIGNATURE, 16)
    outputs, pairs = marked(table, 2.0)
    chosen = pairs < 40

    wager = wager_on_pairs(outputs[chosen], pairs[chosen], table.reshape(-1)[:40], 16)

    assert 4 < wager.decades < 40 * math.log10(2)


@pytest.mark.parametrize("dim", [1, 3, 200])
def test_constant_answers_win_nothing(dim: int) -> None:
    table = pair_table(SIGNATURE, SIZE).reshape(-1)
    for outputs in (np.zeros((len(PAIRS), dim)), np.full((len(PAIRS), dim), 0.7)):
        assert wager_on_pairs(outputs, PAIRS, table, SIZE) == PairWager(0, 1.0)


def test_nonsense_is_refused():
    table = pair_table(SIGNATURE, SIZE).reshape(-1)
    outputs = np.random.default_rng(0).standard_normal((len(PAIRS), DIM))
    with pytest.raises(EvidenceError, match="signs of a table of 7 × 7"):
        wager_on_pairs(outputs, PAIRS, table, 7)
    with pytest.raises(EvidenceError, match="never answered"):
        wager_on_pairs(outputs[PAIRS != 9], PAIRS[PAIRS != 9], table, SIZE)
    with pytest.raises(EvidenceError, match="something else"):
        wager_on_pairs(outputs, PAIRS, 2 * table, SIZE)
    outputs[3, 4] = np.nan
    with pytest.raises(EvidenceError):
        wager_on_pairs(outputs, PAIRS, table, SIZE)
