"""One set of texts for many tables: what is asked, what is read, and that chance finds nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from many_keys import WordModel, make_code
from nsmark.core.pair_code import read_pair_code
from nsmark.corpus import pool_texts
from nsmark.errors import EvidenceError, TextPoolError, UsageError
from nsmark.payload.word_list import ordinary_word_list
from nsmark.verification.identification import (
    PairReader,
    choice_texts,
    choose_pairs,
    identification_seed,
    least_pairs,
)

SEED = identification_seed(bytes(range(16)))


# --- what is asked -------------------------------------------------------------------------------


@given(number=st.integers(0, 1000), size=st.integers(4, 16), most=st.integers(16, 300))
@settings(max_examples=30, deadline=None)
def test_every_table_finds_its_own_entries(number, size, most):
    codes = [make_code(number, size), make_code(number + 1, 16)]
    choice = choose_pairs(codes, SEED, most)
    for code, entries, numbers in zip(codes, choice.entries, choice.numbers, strict=True):
        width = len(code.words) // 2
        assert len(entries) == len(numbers) == min(most, width**2)
        for entry, place in zip(entries, numbers, strict=True):
            row, column = divmod(int(entry), width)
            assert set(choice.pairs[place]) == {code.words[row], code.words[width + column]}
    assert len({frozenset(pair) for pair in choice.pairs}) == len(choice.pairs)


def test_many_keys_of_a_short_list_need_no_more_than_its_pairs():
    choice = choose_pairs([make_code(number) for number in range(200)], SEED)
    assert len(choice.pairs) == 32 * 31 // 2


def test_fewer_pairs_per_key_are_shared_ones():
    codes = [make_code(number) for number in range(200)]
    few = choose_pairs(codes, SEED, 64)
    # A random choice of each key's own would need nearly all 496.
    assert 64 <= len(few.pairs) < 230


def test_what_a_key_is_asked_does_not_depend_on_other_keys():
    mine = make_code(0)
    alone = choose_pairs([mine], SEED, 40)
    among = choose_pairs([make_code(5), mine, make_code(6)], SEED, 40)
    assert np.array_equal(alone.entries[0], among.entries[1])
    assert [among.pairs[n] for n in among.numbers[1]] == [alone.pairs[n] for n in alone.numbers[0]]


def test_texts_follow_from_the_randomness_and_a_small_pool_is_walked_again():
    choice = choose_pairs([make_code(0, 4)], SEED)
    pool = pool_texts()[:10]
    texts = choice_texts(choice, SEED, pool, 3)
    assert texts == choice_texts(choice, SEED, pool, 3)
    assert texts != choice_texts(choice, identification_seed(bytes(16)), pool, 3)
    assert len(texts) == 48
    for number, text in enumerate(texts):
        pair = choice.pairs[number % 16]
        assert all(text.split().count(word) >= 2 for word in pair)
    left = [" ".join(w for w in t.split() if w not in sum(choice.pairs, ())) for t in texts]
    assert sorted(map(left.count, set(left))) == [4, 4, 5, 5, 5, 5, 5, 5, 5, 5]


def test_too_little_randomness_and_an_empty_pool_are_refused():
    with pytest.raises(UsageError, match="15 bytes"):
        identification_seed(bytes(15))
    with pytest.raises(TextPoolError):
        choice_texts(choose_pairs([make_code(0, 4)], SEED), SEED, [], 1)


# --- what is read --------------------------------------------------------------------------------


def answers(marks, codes, *, repeats=3, output_dim=48, strength=0.6):
    choice = choose_pairs(codes, SEED)
    texts = choice_texts(choice, SEED, pool_texts(), repeats)
    model = WordModel(marks, output_dim, strength)
    return choice, model.outputs(texts)


def test_both_marks_of_a_model_are_read_and_no_other():
    codes = [make_code(number) for number in range(40)]
    choice, outputs = answers([codes[3], codes[17]], codes)
    reader = PairReader(outputs, len(choice.pairs), SEED)
    found = [
        reader.read(numbers, code.signs[entries])
        for code, numbers, entries in zip(codes, choice.numbers, choice.entries, strict=True)
    ]
    for number, reading in enumerate(found):
        if number in (3, 17):
            assert reading.p_value < 1e-25
            assert reading.rate > 0.9
        else:
            assert reading.p_value > 1e-5


def test_it_reads_as_much_as_a_probe_of_the_keys_own_rows():
    code = make_code(2)
    choice, outputs = answers([code], [code], strength=0.08)
    signs = code.signs[choice.entries[0]]
    reader = PairReader(outputs, len(choice.pairs), SEED)
    shared = reader.read(choice.numbers[0], signs)
    in_order = np.argsort(choice.numbers[0])
    own = read_pair_code(outputs, np.arange(len(outputs)) % 256, signs[in_order])
    assert shared.rate > own.rate - 0.05
    assert own.rate > 0.7


def test_very_many_columns_are_added_up_and_still_read():
    code = make_code(1, 8)
    choice, outputs = answers([code], [code], output_dim=40)
    wide = outputs @ np.random.default_rng(0).standard_normal((40, 5000))
    reader = PairReader(wide, len(choice.pairs), SEED)
    reading = reader.read(choice.numbers[0], code.signs[choice.entries[0]])
    assert reading.rate > 0.9


def test_chance_is_binomial_for_an_innocent_model():
    """P-values of 1,200 tables on one innocent model's answers: none too small too often."""
    codes = [make_code(number, 6) for number in range(1200)]
    choice, outputs = answers([], codes, repeats=2, output_dim=24)
    reader = PairReader(outputs, len(choice.pairs), SEED)
    readings = [
        reader.read(numbers, code.signs[entries])
        for code, numbers, entries in zip(codes, choice.numbers, choice.entries, strict=True)
    ]
    p_values = np.array([reading.p_value for reading in readings])
    for level in (0.3, 0.1, 0.03, 0.01):
        # Valid: at most the level, but for four standard errors; all tables share the answers.
        assert (p_values <= level).mean() <= level + 4 * np.sqrt(level / len(codes))
    right = np.array([reading.right for reading in readings])
    # 18 coins in each half: mean 9, variance 4.5.
    assert right.mean() == pytest.approx(9, abs=0.25)
    assert right.var() == pytest.approx(4.5, rel=0.15)


def test_answers_that_say_nothing_are_refused():
    choice = choose_pairs([make_code(0, 4)], SEED)
    count = len(choice.pairs)
    with pytest.raises(EvidenceError, match="same output"):
        PairReader(np.ones((count, 5)), count, SEED)
    with pytest.raises(EvidenceError, match="NaN"):
        PairReader(np.full((count, 5), np.nan), count, SEED)
    with pytest.raises(EvidenceError, match="pairs of words"):
        PairReader(np.ones((count - 1, 5)), count, SEED)


def test_so_many_pairs_are_needed_that_all_right_is_beyond_chance():
    for num_keys in (1, 7, 1000):
        half = least_pairs(num_keys) // 2
        assert 2 * 0.5**half * num_keys <= 1e-12 < 2 * 0.5 ** (half - 1) * num_keys


def test_words_of_the_long_list_are_hardly_shared():
    words = ordinary_word_list().words
    codes = [make_code(number, 16, words) for number in range(20)]
    assert len(choose_pairs(codes, SEED).pairs) > 19 * 256
