"""What is asked: all of a pair code, a part of it, none, or texts of the verifier's choice."""

import hashlib

import numpy as np
import pytest

from handmade_keys import make_key
from nsmark.core import pair_table
from nsmark.core.pair_code import MIN_PAIRS
from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, TextPoolError, UsageError
from nsmark.payload import PairConfig
from nsmark.payload.pairs import derive_pair_texts, insert_pair
from nsmark.verification.questions import FreshPairs, Questions, key_questions, pair_questions

SIZES = PairConfig(size=5, repeats=3)
RANDOMNESS = bytes(range(16))


@pytest.fixture(scope="module")
def key():
    return make_key(pairs=SIZES)


def fresh(randomness=RANDOMNESS, pool=None):
    return FreshPairs(randomness, pool_texts() if pool is None else pool)


def test_by_default_every_text_of_the_pair_code_is_asked_after_the_others(key):
    questions = key_questions(key)

    assert questions.triggered == tuple(key.payload().triggered_texts())
    assert questions.untriggered == key.verification_texts
    assert questions.pairs.texts == tuple(key.payload().pair_texts())
    assert questions.texts == [
        *questions.triggered,
        *questions.untriggered,
        *questions.pairs.texts,
    ]
    assert questions.pairs.numbers.tolist() == [t % 25 for t in range(75)]
    assert questions.pairs.signs.tolist() == pair_table(key.signature, 5).reshape(-1).tolist()
    assert questions.pairs.seed == 0


@pytest.mark.parametrize(
    ("count", "num_signs"), [(16, 16), (17, 17), (25, 25), (26, 25), (74, 25), (75, 25)]
)
def test_fewer_texts_ask_the_first_ones_and_so_fewer_signs(key, count, num_signs):
    whole, part = key_questions(key).pairs, key_questions(key, count).pairs

    assert part.texts == whole.texts[:count]
    assert part.numbers.tolist() == whole.numbers[:count].tolist()
    assert part.signs.tolist() == whole.signs[:num_signs].tolist()
    assert sorted(set(part.numbers.tolist())) == list(range(num_signs))


def test_no_texts_ask_nothing_of_the_pair_code(key):
    questions = key_questions(key, 0)

    assert questions.pairs is None
    assert questions.texts == [*questions.triggered, *questions.untriggered]
    assert pair_questions(key, 0, fresh()) is None


@pytest.mark.parametrize("count", [-1, 1, MIN_PAIRS - 1, 76, 10**9])
def test_numbers_of_texts_that_allow_no_test_are_refused(key, count):
    for chosen in (None, fresh()):
        with pytest.raises(ConfigError, match="pair texts") as caught:
            pair_questions(key, count, chosen)
        assert "75" in str(caught.value)


@pytest.mark.parametrize("count", [None, 0, 20, 10**9])
def test_a_key_without_a_pair_code_is_asked_no_texts_of_one(count):
    plain = make_key()

    assert key_questions(plain, count).pairs is None
    assert pair_questions(plain, count, fresh()) is None


def test_fresh_randomness_gives_other_texts_and_places_with_the_same_words(key):
    stored, drawn = pair_questions(key), pair_questions(key, fresh=fresh())

    assert len(drawn.texts) == len(stored.texts)
    assert not set(drawn.texts) & set(stored.texts)
    assert drawn.numbers.tolist() == stored.numbers.tolist()
    assert drawn.signs.tolist() == stored.signs.tolist()
    assert drawn.seed != stored.seed
    seed = hashlib.sha512(b"nsmark/v1/fresh\x00" + RANDOMNESS).digest()
    bases = derive_pair_texts(seed, pool_texts(), 75)
    assert drawn.texts == tuple(
        insert_pair(base, number, key.pairs.words_of(number), seed)
        for number, base in enumerate(bases)
    )


def test_fresh_texts_follow_from_the_randomness_alone(key):
    first = pair_questions(key, fresh=fresh())

    assert pair_questions(key, fresh=fresh()).texts == first.texts
    assert pair_questions(key, 20, fresh()).texts == first.texts[:20]
    other = pair_questions(key, fresh=fresh(RANDOMNESS[::-1]))
    assert not set(other.texts) & set(first.texts)
    assert other.seed != first.seed
    # Not from the signature: another owner's words stand at the same places of the same texts.
    stranger = make_key(owner="Somebody Else", pairs=SIZES)
    asked = pair_questions(stranger, fresh=fresh()).texts
    for mine, theirs in zip(first.texts, asked, strict=True):
        differing = [a != b for a, b in zip(mine.split(), theirs.split(), strict=True)]
        assert sum(differing) <= 4


def test_too_little_randomness_and_too_small_a_pool_are_refused(key):
    with pytest.raises(UsageError, match="15 bytes"):
        pair_questions(key, fresh=fresh(bytes(15)))
    with pytest.raises(TextPoolError, match="74 distinct texts, 75"):
        pair_questions(key, fresh=fresh(pool=pool_texts()[:74]))
    assert len(pair_questions(key, 20, fresh(pool=pool_texts()[:20])).texts) == 20


def test_answers_are_sorted_out_by_kind(key):
    questions = key_questions(key, 20)
    outputs = np.arange(2.0 * len(questions.texts)).reshape(-1, 2)

    answers = questions.sorted_out("somebody", outputs)

    assert answers.name == "somebody"
    assert [len(answers.triggered), len(answers.untriggered), len(answers.pair_texts)] == [
        64,
        64,
        20,
    ]
    np.testing.assert_array_equal(
        np.concatenate([answers.triggered, answers.untriggered, answers.pair_texts]), outputs
    )


def test_answers_to_no_pair_texts_are_none_and_not_empty(key):
    questions = key_questions(key, 0)

    assert questions.sorted_out("x", np.zeros((128, 2))).pair_texts is None
    other_counts = Questions(("a",), ("b", "c"), np.zeros((1, 2)), np.zeros((2, 2)))
    answers = other_counts.sorted_out("x", np.arange(6.0).reshape(3, 2))
    assert answers.triggered.tolist() == [[0, 1]]
    assert answers.untriggered.tolist() == [[2, 3], [4, 5]]
