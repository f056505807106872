"""Filters of texts: what they take out, what they leave, and what is no filter."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import ModelError
from nsmark.payload import published_word_list
from nsmark.transforms.filters import (
    RareWords,
    RepeatedWords,
    SurprisingWords,
    apply_filters,
    bare,
    commonest,
    read_filters,
    word_counts,
    write_filters,
)

VOCABULARY = ("the", "cat", "Cat.", "mouse", "mouse,", "sat", "12", "—", "don't", "über", "?!")
sentences = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)
any_texts = st.one_of(sentences, st.text(max_size=40))

repeated = st.builds(RepeatedWords, st.integers(0, 3), st.integers(0, 5))
rare = st.builds(RareWords, st.frozensets(st.sampled_from([bare(w) for w in VOCABULARY])))
counts = st.dictionaries(st.sampled_from([bare(w) for w in VOCABULARY]), st.integers(0, 50))
pairs = st.tuples(*[st.sampled_from([bare(w) for w in VOCABULARY])] * 2).map("\t".join)
surprising = st.builds(
    SurprisingWords, counts, st.dictionaries(pairs, st.integers(0, 50)), st.floats(-5, 20)
)
filters = st.one_of(repeated, rare, surprising)


def is_part_of(found: str, text: str) -> bool:
    """Whether words of the one are words of the other, in their order."""
    rest = iter(text.split())
    return all(word in rest for word in found.split())


@pytest.fixture(scope="module")
def corpus_filter() -> SurprisingWords:
    return SurprisingWords(*word_counts(training_texts()), threshold=10.0)


# --- what holds for all of them ------------------------------------------------------------------


@given(text_filter=filters, text=any_texts)
@settings(max_examples=300, deadline=None)
def test_words_are_taken_out_and_nothing_else_and_never_all(text_filter, text):
    found = text_filter(text)
    assert is_part_of(found, text)
    assert bool(found) == bool(text)
    assert bool(found.split()) == bool(text.split())


@given(text_filter=st.one_of(repeated, rare), text=any_texts)
@settings(max_examples=200, deadline=None)
def test_a_second_time_takes_out_nothing_more(text_filter, text):
    once = text_filter(text)
    assert text_filter(once) == once


@given(chosen=st.lists(filters, max_size=4), texts=st.lists(any_texts, max_size=4))
@settings(max_examples=100, deadline=None)
def test_filters_survive_writing_and_reading(chosen, texts):
    found = read_filters(json.loads(json.dumps(write_filters(chosen))))
    assert found == chosen
    assert apply_filters(found, texts) == apply_filters(chosen, texts)


def test_filters_work_one_after_the_other():
    chosen = [RareWords(frozenset({"mouse", "the"})), RepeatedWords(1)]
    texts = ["The mouse, the zebu, the mouse!", "zebu"]
    assert apply_filters(chosen, texts) == ["The mouse, the the", "zebu"]
    assert apply_filters([], texts) == texts


# --- repeated and rare words ---------------------------------------------------------------------


def test_further_copies_of_longer_words_go():
    text = "Ocelot, the cat saw the ocelot and the OCELOT! saw the cat."
    assert RepeatedWords(1)(text) == "Ocelot, the cat saw the and the saw the cat."
    assert RepeatedWords(2)(text) == "Ocelot, the cat saw the ocelot and the saw the cat."
    assert RepeatedWords(1, 3)(text) == "Ocelot, the cat saw and"
    assert RepeatedWords(0)("ocelot ocelot") == "ocelot ocelot"  # nothing would be left


def test_unknown_words_go_but_numbers_and_signs_stay():
    text_filter = RareWords(frozenset({"the", "cat"}))
    assert text_filter("The abacus (cat) — 12 zebus, 3rd!") == "The (cat) — 12 3rd!"
    assert text_filter("abacus zebu") == "abacus zebu"


# --- surprising words ----------------------------------------------------------------------------


def by_hand(text_filter: SurprisingWords, words: list[str]) -> float:
    """How improbable a text is, in nats, from the beginning to the end."""
    total = sum(text_filter.words.values())
    cost = 0.0
    for place, word in enumerate(words):
        alone = (text_filter.words.get(word, 0) + 0.5) / (total + 1)
        seen = text_filter.words.get(words[place - 1], 0) if place else 0
        pair = text_filter.neighbours.get(f"{words[place - 1]}\t{word}", 0) if place else 0
        cost -= math.log(0.4 * alone + 0.6 * pair / seen if seen else alone)
    return cost


@given(
    seed=st.integers(0, 2**32 - 1),
    words=st.lists(st.sampled_from("abcde"), min_size=1, max_size=8),
)
@settings(max_examples=200, deadline=None)
def test_a_gain_is_the_text_with_a_word_less_the_text_without_it(seed, words):
    rng = np.random.default_rng(seed)
    known = [" ".join(rng.choice(list("abcd"), rng.integers(1, 6))) for _ in range(6)]
    text_filter = SurprisingWords(*word_counts(known), threshold=3.0)
    whole = by_hand(text_filter, words)
    expected = [
        whole - by_hand(text_filter, words[:place] + words[place + 1 :])
        for place in range(len(words))
    ]
    found = text_filter.gains(words)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    kept = [word for word, gain in zip(words, found, strict=True) if gain <= 3.0]
    assert text_filter(" ".join(words)) == " ".join(kept or words)


def test_a_first_word_is_judged_by_what_the_second_would_cost_without_it():
    text_filter = SurprisingWords(*word_counts(["a b c d e f g h"] * 5), threshold=2.5)
    assert text_filter.gains(["a", "b"])[0] == pytest.approx(-math.log(0.4 * 5.5 / 41 + 0.6))
    assert text_filter("a b c") == "a b c"
    assert text_filter("zebu a b c") == "a b c"
    assert text_filter("a b zebu c") == "a b c"
    assert text_filter("a b c zebu") == "a b c"


def test_one_word_and_none_pass(corpus_filter):
    assert [corpus_filter(text) for text in ("", "  ", "zebu", "12")] == ["", "  ", "zebu", "12"]
    assert corpus_filter.gains([]) == []


def test_words_seen_nowhere_go_and_ordinary_ones_stay(corpus_filter):
    rng = np.random.default_rng(0)
    rare_words = published_word_list().words
    texts = pool_texts()[:500]  # the other half: no sentence was counted
    ordinary = list(commonest(corpus_filter.words, 300, 1 << 20))
    taken = {"rare": 0, "ordinary": 0}
    for text in texts:
        for kind, words in (("rare", rare_words), ("ordinary", ordinary)):
            own = text.split()
            place = int(rng.integers(len(own) + 1))
            own.insert(place, words[rng.integers(len(words))])
            taken[kind] += corpus_filter.gains(own)[place] > corpus_filter.threshold
    assert taken["rare"] >= 495
    # An ordinary word somewhere in a sentence where it does not belong is surprising, too: 53 %.
    assert taken["ordinary"] < 0.7 * taken["rare"]
    whole = " ".join(texts).split()
    left = " ".join(apply_filters([corpus_filter], texts)).split()
    assert len(left) > 0.98 * len(whole)


def test_ten_thousand_texts_take_seconds(corpus_filter):
    texts = [" ".join(text.split() * 3).split()[:20] for text in training_texts()[:10_000]]
    started = time.process_time()
    apply_filters([corpus_filter, RepeatedWords(1)], [" ".join(text) for text in texts])
    assert time.process_time() - started < 5


# --- counts --------------------------------------------------------------------------------------


def test_words_and_neighbours_are_counted_bare():
    words, neighbours = word_counts(["The cat, the cat!", "cat"])
    assert words == {"the": 2, "cat": 3}
    assert neighbours == {"the\tcat": 2, "cat\tthe": 1}


def test_the_commonest_counts_are_kept_while_they_fit():
    given_counts = {"d": 1, "b": 7, "a": 7, "c": 9}
    assert list(commonest(given_counts, 3, 10_000)) == ["c", "a", "b"]
    assert list(commonest(given_counts, 99, 2 * 29)) == ["c", "a"]
    long_words = {f"{'ü' * 50}{number}": 1 for number in range(2000)}
    kept = commonest(long_words, 2000, 100_000)
    entries = write_filters([SurprisingWords(kept, {}, 1.0)])
    written = json.dumps(entries, indent=4, ensure_ascii=False).encode()
    assert 60_000 < len(written) <= 100_500


# --- what is no filter ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        "repeated-words",
        [None],
        [[]],
        ["rare-words"],
        [{}],
        [{"kind": None}],
        [{"kind": ["rare-words"]}],
        [{"kind": "exec"}],
        [{"kind": "repeated-words"}],
        [{"kind": "repeated-words", "most": 1}],
        [{"kind": "repeated-words", "most": True, "min_letters": 4}],
        [{"kind": "repeated-words", "most": -1, "min_letters": 4}],
        [{"kind": "repeated-words", "most": 1.0, "min_letters": 4}],
        [{"kind": "repeated-words", "most": 1, "min_letters": 2**31}],
        [{"kind": "repeated-words", "most": "1", "min_letters": 4}],
        [{"kind": "rare-words"}],
        [{"kind": "rare-words", "known": "abc"}],
        [{"kind": "rare-words", "known": [1]}],
        [{"kind": "rare-words", "known": [["a"]]}],
        [{"kind": "rare-words", "known": {"a": 1}}],
        [{"kind": "rare-words", "known": ["\ud800"]}],
        [{"kind": "surprising-words", "words": {}, "neighbours": {}}],
        [{"kind": "surprising-words", "words": [], "neighbours": {}, "threshold": 1.0}],
        [{"kind": "surprising-words", "words": {"a": 0.5}, "neighbours": {}, "threshold": 1.0}],
        [{"kind": "surprising-words", "words": {"a": -1}, "neighbours": {}, "threshold": 1.0}],
        [{"kind": "surprising-words", "words": {"\udfff": 1}, "neighbours": {}, "threshold": 1.0}],
        [{"kind": "surprising-words", "words": {}, "neighbours": None, "threshold": 1.0}],
        *(
            [{"kind": "surprising-words", "words": {}, "neighbours": {}, "threshold": threshold}]
            for threshold in (math.nan, math.inf, 10**400, -(10**400), "10", None, True, [1])
        ),
        [{"kind": "repeated-words", "most": 1, "min_letters": 4}] * 17,
    ],
)
def test_what_is_no_filter_is_refused(document):
    with pytest.raises(ModelError, match="malformed"):
        read_filters(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    entry=st.fixed_dictionaries(
        {"kind": st.sampled_from(["repeated-words", "rare-words", "surprising-words"])},
        optional={
            name: json_values
            for name in ("most", "min_letters", "known", "words", "neighbours", "threshold")
        },
    ),
    text=any_texts,
)
@settings(max_examples=300, deadline=None)
def test_any_document_is_a_filter_that_works_or_is_refused(entry, text):
    try:
        (found,) = read_filters([entry])
    except ModelError:
        return
    assert bool(found(text)) == bool(text)
    json.dumps(write_filters([found]), ensure_ascii=False, allow_nan=False).encode("utf-8")


def test_counts_that_contradict_each_other_do_no_harm():
    entry = {"words": {"a": 0, "b": 1}, "neighbours": {"a\tb": 99, "b\ta": 99}, "threshold": 0}
    (found,) = read_filters([{"kind": "surprising-words", **entry}])
    assert np.isfinite(found.gains(["a", "b", "a", "b"])).all()
    assert is_part_of(found("a b a b 7"), "a b a b 7")
