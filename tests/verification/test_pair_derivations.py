"""Words and texts of pair codes must follow from the signature; what could be chosen is a doubt."""

from dataclasses import replace

import pytest

from handmade_keys import make_key, make_signed_claim, reseal
from nsmark.core.derive import walk_indices
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import KeyFileError
from nsmark.payload import PairConfig, WordList, ordinary_word_list
from nsmark.payload.pairs import choose_pair_words, derive_pair_texts
from nsmark.verification.derivations import pair_doubt

SIZES = PairConfig(size=4, repeats=2)
OWN_POOL = [f"text number {i} of a pool that somebody keeps" for i in range(400)]


@pytest.fixture(scope="module")
def key():
    return make_key(pairs=SIZES)


@pytest.fixture(scope="module")
def own_pool_key(key):
    """An honest key whose texts come from another pool than the package's."""
    texts = derive_pair_texts(key.signature, OWN_POOL, 32)
    return with_pairs(key, texts=texts, pool_digest=lines_digest(OWN_POOL))


def with_pairs(key, pool_digest=None, **changes):
    changed = replace(key.pairs, **changes)
    return reseal(key, pairs=changed, pool_digest=pool_digest or key.pool_digest)


def doubt_of(key, pool=None, *, fresh=False, words=None):
    """As verification asks: without a pool of the verifier's it is the package's."""
    return pair_doubt(
        key,
        pool=pool_texts() if pool is None else pool,
        pool_is_published=pool is None,
        is_fresh=fresh,
        word_list=words,
    )


def walk(key, count):
    words = ordinary_word_list().words
    indices = walk_indices(key.signature, "pair-words", len(words), count, lambda index: False)
    return [words[index] for index in indices]


def refused(key, match, **options):
    with pytest.raises(KeyFileError, match=match) as caught:
        doubt_of(key, **options)
    assert "forged" in caught.value.hint or "digest" in caught.value.hint


def test_a_free_trigger_would_be_a_free_choice_of_words(key):
    """It is passed over among the words, if it is one of them."""
    word = key.pairs.words[3]
    words, _ = choose_pair_words(key.signature, ordinary_word_list().words, SIZES.size, word)
    chosen = reseal(key, trigger=word, pairs=replace(key.pairs, words=words))
    settings = {"pool": pool_texts(), "pool_is_published": True, "is_fresh": True}

    assert pair_doubt(chosen, **settings) is None
    assert "trigger" in pair_doubt(chosen, **settings, is_trigger_checked=False)
    assert pair_doubt(key, **settings, is_trigger_checked=False) is None


def test_an_honest_key_leaves_no_doubt(key):
    assert doubt_of(key) is None
    assert doubt_of(key, fresh=True) is None
    assert doubt_of(key, words=ordinary_word_list()) is None


def test_a_key_without_a_pair_code_leaves_none_either():
    assert doubt_of(make_key()) is None


# --- words ---


def test_words_of_the_owners_choice_are_refused(key):
    words = key.pairs.words
    stranger = next(w for w in ordinary_word_list().words if w not in words)
    other = make_key(owner="Somebody Else", pairs=SIZES).pairs.words
    for chosen in (
        (words[1], words[0], *words[2:]),
        (*words[4:], *words[:4]),  # rows and columns exchanged
        (stranger, *words[1:]),
        ("zzzzzzzz", *words[1:]),
        other,
    ):
        for fresh in (False, True):
            refused(with_pairs(key, words=chosen), "words do not follow", fresh=fresh)


def test_words_chosen_by_skipping_are_doubted_even_on_fresh_texts(key):
    first = key.pairs.words[0]
    words, skipped = choose_pair_words(
        key.signature, ordinary_word_list().words, 4, key.trigger, lambda word: word != first
    )
    chosen = with_pairs(key, words=words, skipped_words=skipped)

    for fresh in (False, True):
        doubt = doubt_of(chosen, fresh=fresh)
        assert "1 words" in doubt
        assert "skipped" in doubt


def test_lies_about_skipped_words_are_refused(key):
    on_the_way = walk(key, 12)
    assert tuple(on_the_way[:8]) == key.pairs.words
    for words, skipped in [
        (on_the_way[1:9], ()),  # skipped without saying so
        (on_the_way[:8], on_the_way[8:9]),  # not on the way
        (on_the_way[:8], ["zebra"]),
        (on_the_way[2:10], on_the_way[1::-1]),  # another order than that of the walk
        (on_the_way[1:9], [on_the_way[0]] * 2),
        (on_the_way[:8], [on_the_way[0]]),
    ]:
        lie = with_pairs(key, words=tuple(words), skipped_words=tuple(skipped))
        refused(lie, "words do not follow")
    everything = ordinary_word_list().words
    refused(with_pairs(key, skipped_words=everything), "words do not follow")


def test_the_trigger_is_passed_over_without_being_called_skipped(key):
    # Only with a rare-word list of an authority's own can the trigger be an ordinary word.
    on_the_way = walk(key, 9)
    moved = tuple(on_the_way[:2] + on_the_way[3:])
    honest = reseal(
        key,
        trigger=on_the_way[2],
        word_list_digest="11" * 32,
        pairs=replace(key.pairs, words=moved),
    )

    assert doubt_of(honest) is None
    refused(with_pairs(honest, skipped_words=(on_the_way[2],)), "words do not follow")
    refused(with_pairs(honest, words=key.pairs.words), "words do not follow")


def test_a_word_list_not_at_hand_is_a_doubt_and_a_wrong_one_a_refusal(key):
    unknown = with_pairs(key, word_list_digest="22" * 32)
    shorter = WordList(ordinary_word_list().words[1:])

    for fresh in (False, True):
        assert "word list not at hand" in doubt_of(unknown, fresh=fresh)
    refused(key, "another word list", words=shorter)
    refused(unknown, "another word list", words=ordinary_word_list())


def test_a_word_list_of_an_authority_is_checked_when_it_is_given(key):
    theirs = WordList(ordinary_word_list().words[::-1][:2000][::-1])
    words, _ = choose_pair_words(key.signature, theirs.words, 4, key.trigger)
    honest = with_pairs(key, words=words, word_list_digest=theirs.digest)

    assert doubt_of(honest, words=theirs) is None
    lie = with_pairs(honest, words=key.pairs.words)
    refused(lie, "words do not follow", words=theirs)


# --- texts ---


def test_texts_of_the_owners_choice_are_refused(key):
    texts = key.pairs.texts
    other = make_key(owner="Somebody Else", pairs=SIZES).pairs.texts
    for chosen in (
        (texts[1], texts[0], *texts[2:]),
        texts[::-1],
        (texts[0],) * 32,
        ("a text of my own", *texts[1:]),
        (training_texts()[0], *texts[1:]),
        key.verification_texts[:32],
        other,
    ):
        refused(with_pairs(key, texts=chosen), "texts do not follow")
        # Fresh texts are asked instead, but who lies is not heard.
        refused(with_pairs(key, texts=chosen), "texts do not follow", fresh=True)


def test_everything_follows_from_the_signature_and_not_from_the_key_file(key):
    refused(
        reseal(key, signed_claim=make_signed_claim(owner="Example Labs")), "words do not follow"
    )


def test_a_pool_not_at_hand_is_a_doubt_that_fresh_texts_remove(own_pool_key):
    doubt = doubt_of(own_pool_key)

    assert "not checked" in doubt
    assert "--pool" in doubt
    assert doubt_of(own_pool_key, fresh=True) is None
    # Nor can it be checked against a pool that is another one.
    assert "--pool" in doubt_of(own_pool_key, OWN_POOL[1:])


def test_a_pool_that_somebody_brings_is_a_doubt_that_fresh_texts_remove(own_pool_key):
    doubt = doubt_of(own_pool_key, OWN_POOL)

    assert "made for this signature" in doubt
    assert "--fresh" in doubt
    assert doubt_of(own_pool_key, OWN_POOL, fresh=True) is None


def test_texts_are_checked_against_a_pool_that_somebody_brings(own_pool_key):
    for fresh in (False, True):
        for chosen in (own_pool_key.pairs.texts[::-1], tuple(OWN_POOL[:32])):
            lie = with_pairs(own_pool_key, texts=chosen)
            refused(lie, "texts do not follow", pool=OWN_POOL, fresh=fresh)


def test_a_key_with_more_pair_texts_than_its_pool_is_refused(key):
    small = OWN_POOL[:31]
    lie = with_pairs(key, pool_digest=lines_digest(small))

    refused(lie, "texts do not follow", pool=small)


def test_the_first_doubt_does_not_hide_a_lie(key, own_pool_key):
    lie = with_pairs(own_pool_key, words=key.pairs.words[::-1])
    refused(lie, "words do not follow")  # although the pool is not at hand
    first = key.pairs.words[0]
    words, skipped = choose_pair_words(
        key.signature, ordinary_word_list().words, 4, key.trigger, lambda word: word != first
    )
    both = with_pairs(key, words=words, skipped_words=skipped, texts=key.pairs.texts[::-1])
    refused(both, "texts do not follow")  # although words were skipped
