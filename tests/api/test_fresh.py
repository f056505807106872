"""Measuring now, on texts that the owner could not prepare for."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import TINY_NUM_TEXTS
from nsmark.api import verify
from nsmark.api.fresh import FreshTexts, fresh_questions
from nsmark.corpus import pool_texts
from nsmark.errors import KeyFileError, TextPoolError, UsageError
from nsmark.verification.questions import fresh_payload, key_questions

RANDOMNESS = bytes(range(16))


def test_fresh_texts_follow_from_the_randomness_alone(tiny_marked):
    key, pool = tiny_marked.key, pool_texts()
    first = fresh_payload(key, RANDOMNESS, pool)
    assert first == fresh_payload(key, RANDOMNESS, pool)
    other = fresh_payload(key, RANDOMNESS + b"\x00", pool)
    assert first.verification_texts != other.verification_texts != key.verification_texts
    assert len(set(first.verification_texts)) == TINY_NUM_TEXTS
    for text, plain in zip(first.triggered_texts(), first.verification_texts, strict=True):
        assert [word for word in text.split() if word != key.trigger] == plain.split()
    # The places of the trigger are the verifier's, too.
    assert first.triggered_texts() != key.payload().triggered_texts()


def test_too_little_randomness_is_refused(tiny_marked):
    with pytest.raises(UsageError, match="15 bytes"):
        fresh_payload(tiny_marked.key, bytes(15), pool_texts())


def test_the_owners_model_answers_now(tiny_marked):
    fresh = FreshTexts(tiny_marked.model_folder, RANDOMNESS)
    questions = fresh_questions(tiny_marked.key, fresh, None, "cpu")
    stored = key_questions(tiny_marked.key)
    assert questions.owner_triggered.shape == stored.owner_triggered.shape
    assert set(questions.triggered).isdisjoint(stored.triggered)
    assert not np.allclose(questions.owner_triggered, stored.owner_triggered)


def test_a_fresh_measurement_finds_the_model_and_no_other(tiny_marked, tiny_st):
    fresh = FreshTexts(tiny_marked.model_folder, RANDOMNESS)
    found = verify(tiny_marked.key, tiny_marked.model_folder, fresh=fresh, controls=[tiny_st])
    assert found.verdict == "owned"
    assert found.to_mapping()["fresh"] == RANDOMNESS.hex()
    assert found.evidence.triggered.subspace_overlap == pytest.approx(1.0)
    innocent = verify(tiny_marked.key, tiny_st, fresh=fresh)
    assert innocent.verdict == "not_shown"


def test_another_model_than_the_keys_is_refused(tiny_marked, tiny_st):
    with pytest.raises(KeyFileError, match="does not hold the model"):
        verify(tiny_marked.key, tiny_st, fresh=FreshTexts(tiny_st, RANDOMNESS))


def test_fresh_texts_come_from_the_pool_that_the_key_names(tiny_marked):
    fresh = FreshTexts(tiny_marked.model_folder, RANDOMNESS)
    with pytest.raises(TextPoolError, match="another one"):
        fresh_questions(tiny_marked.key, fresh, ["a text"] * 5, "cpu")
