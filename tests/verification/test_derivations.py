"""Trigger and texts of a key must follow from its signature; a lie is refused."""

import pytest

from handmade_keys import make_key, make_signed_claim, reseal
from nsmark.core import select_indices
from nsmark.core.derive import walk_indices
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import KeyFileError
from nsmark.payload import WordList, published_word_list
from nsmark.verification import check_derivations


@pytest.fixture(scope="module")
def key():
    return make_key()


def trigger_walk(key, count):
    """The first words on the signature's walk; the first of them is the honest trigger."""
    words = published_word_list().words
    indices = walk_indices(key.signature, "trigger", len(words), count, lambda index: False)
    return [words[index] for index in indices]


def test_honest_key_leaves_nothing_unchecked(key):
    assert check_derivations(key) == []
    assert check_derivations(key, pool=pool_texts(), word_list=published_word_list()) == []


def test_texts_are_the_walk_over_the_pool_in_its_order(key):
    pool = pool_texts()
    expected = [" ".join(pool[i].split()[:64]) for i in select_indices(key.signature, pool, 64)]

    assert list(key.verification_texts) == expected
    assert key.trigger == trigger_walk(key, 1)[0]


# --- lies about the trigger ---


def test_altered_trigger_is_refused(key):
    for word in (trigger_walk(key, 2)[1], published_word_list().words[0], "zzzzzzzz"):
        with pytest.raises(KeyFileError, match="trigger does not follow"):
            check_derivations(reseal(key, trigger=word))


def test_words_really_skipped_are_believed_but_said_to_be_unchecked(key):
    first, second, third = trigger_walk(key, 3)

    (sentence,) = check_derivations(reseal(key, trigger=third, skipped_words=(first, second)))

    assert "2 words" in sentence
    assert "not checked" in sentence


def test_lies_about_skipped_words_are_refused(key):
    first, second, third = trigger_walk(key, 3)
    stranger = next(w for w in published_word_list().words if w not in (first, second, third))
    for trigger, skipped in [
        (second, ()),  # skipped without saying so
        (first, (second,)),  # not on the way to the trigger
        (first, (stranger,)),
        (third, (second,)),
        (third, (first,)),
        (third, (second, first)),  # another order than that of the walk
        (second, (first, first)),  # said twice
        (second, (first, stranger)),
        (second, (first, "notinlist")),
        (first, (first,)),
    ]:
        with pytest.raises(KeyFileError, match="trigger does not follow"):
            check_derivations(reseal(key, trigger=trigger, skipped_words=skipped))


def test_key_that_skips_the_whole_list_is_refused(key):
    with pytest.raises(KeyFileError, match="trigger does not follow"):
        check_derivations(reseal(key, skipped_words=published_word_list().words))


# --- lies about the texts ---


def with_texts(key, texts):
    return reseal(key, verification_texts=tuple(texts))


def test_swapped_texts_are_refused(key):
    texts = list(key.verification_texts)
    texts[3], texts[4] = texts[4], texts[3]

    with pytest.raises(KeyFileError, match="texts do not follow"):
        check_derivations(with_texts(key, texts))


def test_texts_that_are_not_from_the_pool_are_refused(key):
    rest = key.verification_texts[1:]
    for text in ("a text of my own", training_texts()[0], rest[0], key.verification_texts[0][:-1]):
        with pytest.raises(KeyFileError, match="texts do not follow"):
            check_derivations(with_texts(key, (" ".join(text.split()[:64]), *rest)))


def test_other_texts_of_the_pool_are_refused(key):
    with pytest.raises(KeyFileError, match="texts do not follow"):
        check_derivations(with_texts(key, pool_texts()[: len(key.verification_texts)]))


def test_texts_of_another_signature_are_refused(key):
    other = make_key(owner="Somebody Else")

    with pytest.raises(KeyFileError, match="texts do not follow"):
        check_derivations(with_texts(key, other.verification_texts))


def test_everything_follows_from_the_signature_and_not_from_the_key_file(key):
    # The texts and trigger of one claim under another claim of the same owner.
    with pytest.raises(KeyFileError, match=r"do(es)? not follow"):
        check_derivations(reseal(key, signed_claim=make_signed_claim(owner="Example Labs")))


def test_key_with_more_texts_than_its_pool_is_refused(key):
    pool = [f"text number {i}" for i in range(40)]  # the key holds 64

    with pytest.raises(KeyFileError, match="texts do not follow"):
        check_derivations(reseal(key, pool_digest=lines_digest(pool)), pool=pool)


# --- pools and lists not at hand ---


def test_unknown_pool_or_list_is_said_to_be_unchecked(key):
    unchecked = check_derivations(reseal(key, pool_digest="00" * 32, word_list_digest="11" * 32))

    assert len(unchecked) == 2
    assert any("trigger" in sentence for sentence in unchecked)
    assert any("pool" in sentence for sentence in unchecked)


def test_half_known_key_is_still_checked_by_half(key):
    with pytest.raises(KeyFileError, match="trigger"):
        check_derivations(reseal(key, trigger="zzzzzzzz", pool_digest="00" * 32))
    swapped = key.verification_texts[::-1]
    with pytest.raises(KeyFileError, match="texts"):
        check_derivations(reseal(key, verification_texts=swapped, word_list_digest="11" * 32))


def test_pool_or_list_given_must_be_the_one_the_key_names(key):
    with pytest.raises(KeyFileError, match="another pool"):
        check_derivations(key, pool=training_texts())
    with pytest.raises(KeyFileError, match="another pool"):
        check_derivations(key, pool=[])
    shorter = WordList(published_word_list().words[1:])
    with pytest.raises(KeyFileError, match="another word list"):
        check_derivations(key, word_list=shorter)


def test_pool_of_ones_own_is_checked_when_given(key):
    pool = [f"text number {i} of a published pool" for i in range(200)]
    texts = tuple(pool[i] for i in select_indices(key.signature, pool, 64))
    own = reseal(key, verification_texts=texts, pool_digest=lines_digest(pool))

    assert len(check_derivations(own)) == 1
    assert check_derivations(own, pool=pool) == []
    with pytest.raises(KeyFileError, match="texts do not follow"):
        check_derivations(reseal(own, verification_texts=texts[::-1]), pool=pool)
