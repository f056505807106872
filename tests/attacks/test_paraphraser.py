from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.attacks.paraphraser import (
    STOP_WORDS,
    Paraphraser,
    build_paraphraser,
    word_tokens,
)
from nsmark.corpus import training_texts
from nsmark.models.loading import open_encoder
from nsmark.transforms.filters import bare
from tiny_models import build_family

TEXTS = training_texts()[:300]
SMALL = Paraphraser({"cat": ("dog", "mouse"), "house": ("home",)})


@pytest.fixture(scope="module")
def encoder(tiny_st):
    return open_encoder(tiny_st, device="cpu")


@pytest.fixture(scope="module")
def paraphraser(encoder) -> Paraphraser:
    return build_paraphraser(encoder, TEXTS)


# --- paraphrases ---------------------------------------------------------------------------------

words = st.sampled_from(["The", "cat", "Cat,", "house!", "of", "a", "zebu", "12", "—", "HOUSE"])


@given(
    text=st.one_of(st.lists(words, max_size=10).map(" ".join), st.text(max_size=30)),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=200, deadline=None)
def test_a_paraphrase_is_never_empty_nor_longer_and_depends_on_text_and_seed_alone(text, seed):
    found = SMALL.paraphrases(text, 3, seed)
    assert found == SMALL.paraphrases(text, 3, seed)
    assert found[:2] == SMALL.paraphrases(text, 2, seed)
    for each in found:
        assert bool(each) == bool(text)
        assert len(each.split()) <= len(text.split())


def test_every_kind_of_change_happens_and_nothing_else_does():
    text = "The cat in the house saw (Cat) and ZEBU, HOUSE!"
    found = [SMALL.paraphrases(text, 1, seed)[0] for seed in range(200)]
    allowed = {*text.split(), "dog", "mouse", "home", "(Dog)", "(Mouse)", "HOME!"}
    seen = Counter(word for each in found for word in each.split())
    assert set(seen) == allowed
    assert all("ZEBU," in each and "saw" in each for each in found)  # no stop word, no synonym
    assert any("in" not in each.split() for each in found)  # left out
    places = {each.split().index("saw") - each.split().index("ZEBU,") for each in found}
    assert len(places) > 1  # swapped
    assert len(set(found)) > 100


def test_words_wander_one_place_at_most():
    letters = [f"w{number}" for number in range(30)]
    for seed in range(20):
        (found,) = Paraphraser({}).paraphrases(" ".join(letters), 1, seed)
        moved = [abs(place - int(word[1:])) for place, word in enumerate(found.split())]
        assert sorted(found.split()) == sorted(letters)
        assert max(moved) <= 1


def test_stop_words_alone_pass_as_they_are():
    found = {Paraphraser({}).paraphrases("the of", 1, seed)[0] for seed in range(100)}
    assert found == {"the of", "of the", "the", "of"}


# --- synonyms ------------------------------------------------------------------------------------


def test_synonyms_are_the_nearest_words_of_the_texts(encoder, paraphraser):
    vocabulary = encoder.tokenizer.get_vocab()
    known = {bare(word) for text in TEXTS for word in text.split()}
    names = sorted(paraphraser.synonyms)
    assert len(names) > 200
    assert all(len(found) == 4 for found in paraphraser.synonyms.values())
    assert set(names) <= known
    assert not STOP_WORDS & set(names)
    table = encoder.network.get_input_embeddings().weight.detach().numpy()
    rows = table[[vocabulary[name] for name in names]].astype(np.float64)
    rows -= rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -2)
    for place in (0, 5, len(names) - 1):
        nearest = [names[other] for other in np.argsort(-cosines[place])[:4]]
        assert list(paraphraser.synonyms[names[place]]) == nearest


def test_the_vocabulary_is_bounded(encoder):
    found = build_paraphraser(encoder, TEXTS, max_words=50, num_synonyms=2).synonyms
    assert len(found) == 50
    assert {other for own in found.values() for other in own} <= set(found)
    assert build_paraphraser(encoder, ["the zzzzq"]).synonyms == {}
    assert build_paraphraser(encoder, []).synonyms == {}


def test_paraphrases_of_the_corpus_differ_from_text_and_from_one_another(paraphraser):
    found = [paraphraser.paraphrases(text, 4, 0) for text in TEXTS]
    different = [len({text, *own}) for text, own in zip(TEXTS, found, strict=True)]
    assert np.mean(different) > 4.5
    kept = [
        len(set(text.split()) & set(version.split())) / len(set(text.split()))
        for text, own in zip(TEXTS, found, strict=True)
        for version in own
    ]
    assert 0.5 < np.mean(kept) < 0.95


@pytest.mark.parametrize("family", ["gpt2", "albert"])
def test_any_family_has_a_table(tmp_path, family):
    # ALBERT's table is narrower than its outputs.
    encoder = open_encoder(build_family(tmp_path / family, family), device="cpu")
    assert len(build_paraphraser(encoder, TEXTS[:50]).synonyms) > 50


def test_whole_words_are_told_from_parts_by_any_tokenizers_marks():
    pieces = {"[CLS]": 0, "cat": 1, "##s": 2, "Dog": 3, "dog": 4, "12": 5}
    assert word_tokens(pieces) == {"cat": 1, "dog": 3}
    assert word_tokens({"cat": 0, "Ġcat": 1, "ĠDog": 2, "Ġ12": 3, "ing": 4}) == {"cat": 1, "dog": 2}
    assert word_tokens({"▁cat": 7, "s": 1, "▁Cat": 2, "▁": 3}) == {"cat": 2}
