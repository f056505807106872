"""How a language-model loss is posed; what models make of it is in test_families.py."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import ModelError
from nsmark.models.language import LanguageTask, language_task
from nsmark.models.loading import open_encoder
from tiny_models import build_tokenizer

SPECIAL, MASK, VOCABULARY = (0, 2, 3), 4, 1000
MASKED = LanguageTask("masked", SPECIAL, MASK, VOCABULARY, 0, "right")
CAUSAL = replace(MASKED, objective="causal", mask_id=-1)
PERMUTATION = replace(MASKED, objective="permutation", mask_id=-1, padding_side="left")

tasks = st.sampled_from([MASKED, CAUSAL, PERMUTATION])
sides = st.sampled_from(["left", "right"])
seeds = st.integers(0, 2**32 - 1)
lengths_of_texts = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def random_texts(rng: np.random.Generator, lengths: list[int]) -> list[np.ndarray]:
    """Texts with an ordinary vocabulary, a special token here and there."""
    texts = [rng.integers(5, VOCABULARY, length).astype(np.int32) for length in lengths]
    for ids in texts:
        special = rng.random(len(ids)) < 0.1
        ids[special] = rng.choice(SPECIAL, special.sum())
    return texts


def pose_all(task: LanguageTask, texts: list[np.ndarray], rng: np.random.Generator, length=30):
    draws = task.draws(rng, len(texts), length)
    return [task.pose(ids, own) for ids, own in zip(texts, draws, strict=True)]


# --- masked --------------------------------------------------------------------------------------


@given(seed=seeds, lengths=lengths_of_texts)
@settings(max_examples=60, deadline=None)
def test_masked_tokens_are_ordinary_and_their_labels_are_what_stood_there(seed, lengths):
    rng = np.random.default_rng(seed)
    texts = random_texts(rng, lengths)
    for ids, text in zip(texts, pose_all(MASKED, texts, rng), strict=True):
        assert not np.isin(ids[text.places], SPECIAL).any()
        assert text.labels.tolist() == ids[text.places].tolist()
        assert text.ids.dtype == np.int32
        untouched = np.delete(np.arange(len(ids)), text.places)
        assert text.ids[untouched].tolist() == ids[untouched].tolist()
        assert np.diff(text.places).min(initial=1) > 0


def test_a_seventh_of_the_tokens_is_masked_as_in_bert():
    ids = np.resize(np.arange(5, VOCABULARY, dtype=np.int32), 40_000)
    text = pose_all(MASKED, [ids], np.random.default_rng(0), len(ids))[0]
    assert len(text.places) / len(ids) == pytest.approx(0.15, abs=0.01)
    given_ids = text.ids[text.places]
    masked, kept = given_ids == MASK, given_ids == text.labels
    assert masked.mean() == pytest.approx(0.8, abs=0.02)
    assert kept.mean() == pytest.approx(0.1, abs=0.015)
    strangers = given_ids[~masked & ~kept]
    assert len(strangers) / len(text.places) == pytest.approx(0.1, abs=0.015)
    assert 0 <= strangers.min() < 50
    assert VOCABULARY - 50 < strangers.max() < VOCABULARY


# --- causal --------------------------------------------------------------------------------------


@given(seed=seeds, length=st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_a_causal_model_predicts_every_next_token(seed, length):
    rng = np.random.default_rng(seed)
    (ids,) = random_texts(rng, [length])
    (text,) = pose_all(CAUSAL, [ids], rng)
    assert text.ids.tolist() == ids.tolist()
    assert text.places.tolist() == list(range(length - 1))
    assert text.labels.tolist() == ids[1:].tolist()


# --- permuted ------------------------------------------------------------------------------------


@given(seed=seeds, lengths=lengths_of_texts, side=sides)
@settings(max_examples=60, deadline=None)
def test_a_permutation_hides_what_comes_later(seed, lengths, side):
    """A predicted token must not see itself: its loss cannot be that of copying."""
    rng = np.random.default_rng(seed)
    task = replace(PERMUTATION, padding_side=side)
    texts = random_texts(rng, lengths)
    posed = pose_all(task, texts, rng)
    _, inputs = task.batch(texts, posed)
    own = inputs.permutation
    for row, text in enumerate(posed):
        shift = own.tokens.input_ids.shape[1] - len(text.ids) if side == "left" else 0
        predicted = (shift + text.places).tolist()
        hidden = own.hidden[row].numpy()
        others = np.delete(np.arange(len(hidden)), predicted)
        assert not hidden[:, others].any()  # ordinary tokens are open to all
        assert hidden[np.ix_(others, predicted)].all()  # and do not give away what is predicted
        for i in predicted:
            assert hidden[i, i] == 1  # not itself
            # Of two predicted tokens exactly one sees the other.
            assert all(hidden[i, j] + hidden[j, i] == 1 for j in predicted if j != i)
        # Whoever sees more comes later: an order, not a mere tournament.
        seen = [int((hidden[i, predicted] == 0).sum()) for i in predicted]
        assert sorted(seen) == list(range(len(predicted)))


def test_a_sixth_of_the_tokens_is_predicted_as_in_xlnet():
    ids = np.resize(np.arange(5, VOCABULARY, dtype=np.int32), 40_000)
    text = pose_all(PERMUTATION, [ids], np.random.default_rng(0), len(ids))[0]
    assert len(text.places) / len(ids) == pytest.approx(1 / 6, abs=0.01)
    assert text.ids.tolist() == ids.tolist()
    assert ((text.order >= 0).nonzero()[0] == text.places).all()


@given(seed=seeds, lengths=lengths_of_texts)
@settings(max_examples=30, deadline=None)
def test_special_tokens_are_never_predicted_by_a_permutation(seed, lengths):
    rng = np.random.default_rng(seed)
    texts = random_texts(rng, lengths)
    for ids, text in zip(texts, pose_all(PERMUTATION, texts, rng), strict=True):
        assert not np.isin(ids[text.places], SPECIAL).any()
        assert text.labels.tolist() == ids[text.places].tolist()


# --- all of them ---------------------------------------------------------------------------------


@given(task=tasks, seed=seeds, length=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_posing_follows_from_the_draws_alone(task, seed, length):
    rng = np.random.default_rng(seed)
    (ids,) = random_texts(rng, [length])
    before = ids.copy()
    (draws,) = task.draws(np.random.default_rng(seed), 1, 30)
    beyond = draws.copy()
    beyond[:, length:] = 0.0  # what lies behind the text is nobody's business
    first, again = task.pose(ids, draws), task.pose(ids, beyond)
    assert ids.tolist() == before.tolist()
    for name in ("ids", "places", "labels", "order"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


@given(task=tasks, seed=seeds)
@settings(max_examples=20, deadline=None)
def test_a_texts_draws_do_not_depend_on_how_many_follow_it(task, seed):
    few, many = (task.draws(np.random.default_rng(seed), count, 8) for count in (2, 5))
    np.testing.assert_array_equal(few, many[:2])


@given(task=tasks, seed=seeds, lengths=lengths_of_texts, side=sides, extra=st.integers(0, 2))
@settings(max_examples=100, deadline=None)
def test_places_point_at_the_states_that_predict(task, seed, lengths, side, extra):
    rng = np.random.default_rng(seed)
    task = replace(task, padding_side=side)
    texts = random_texts(rng, lengths)
    posed = pose_all(task, texts, rng)
    read = texts + random_texts(rng, [35] * extra)  # a longer one moves everybody's padding
    tokens, inputs = task.batch(read, posed)
    assert inputs.num_read == len(read)
    assert inputs.labels.tolist() == [int(label) for text in posed for label in text.labels]
    first = len(read) if task.objective == "masked" else 0
    if inputs.permutation is not None:
        given_tokens = inputs.permutation.tokens
        rows, width, _ = inputs.permutation.targets.shape
        row_of, place_of = inputs.places // width, inputs.places % width
        targets = inputs.permutation.targets[row_of, place_of]
        assert (targets.sum(dim=1) == 1).all()
        column_of = targets.argmax(dim=1)
        assert rows == len(posed)
    else:
        given_tokens, length = tokens, tokens.input_ids.shape[1]
        row_of, column_of = inputs.places // length, inputs.places % length
    expected = [
        (first + row, place) for row, text in enumerate(posed) for place in text.places.tolist()
    ]
    starts = given_tokens.attention_mask.argmax(dim=1)  # where each text begins
    found = zip(row_of.tolist(), (column_of - starts[row_of]).tolist(), strict=True)
    assert list(found) == expected
    assert (given_tokens.attention_mask[row_of, column_of] == 1).all()


@given(task=tasks, seed=seeds, lengths=lengths_of_texts)
@settings(max_examples=30, deadline=None)
def test_texts_to_read_come_first_and_unchanged(task, seed, lengths):
    rng = np.random.default_rng(seed)
    texts = random_texts(rng, lengths)
    tokens, _ = task.batch(texts, pose_all(task, texts, rng))
    for row, ids in enumerate(texts):
        assert tokens.input_ids[row][tokens.attention_mask[row] == 1].tolist() == ids.tolist()


@pytest.mark.parametrize("task", [MASKED, CAUSAL, PERMUTATION], ids=lambda task: task.objective)
def test_without_texts_to_predict_in_there_is_no_loss(task):
    tokens, inputs = task.batch([np.array([5, 6], dtype=np.int32)], [])
    assert inputs is None
    assert tokens.input_ids.tolist() == [[5, 6]]
    assert task.replaces_text is (task is not CAUSAL)


@pytest.mark.parametrize("task", [MASKED, CAUSAL, PERMUTATION], ids=lambda task: task.objective)
def test_a_device_is_reached_with_everything(task):
    texts = random_texts(np.random.default_rng(0), [4, 7])
    _, inputs = task.batch(texts, pose_all(task, texts, np.random.default_rng(0)))
    moved = inputs.to(torch.device("meta"))
    tensors = [moved.places, moved.labels]
    if moved.permutation is not None:
        own = moved.permutation
        tensors += [own.hidden, own.targets, own.tokens.input_ids, own.tokens.attention_mask]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.num_read == 2


def test_the_task_of_a_model_follows_from_its_tokenizer(tiny_mlm):
    encoder = open_encoder(tiny_mlm, device="cpu", purpose="train")
    tokenizer, task = encoder.tokenizer, encoder.task
    assert (task.objective, task.padding_side) == ("masked", "right")
    assert (task.mask_id, task.pad_id) == (tokenizer.mask_token_id, tokenizer.pad_token_id)
    assert set(task.special_ids) == set(tokenizer.all_special_ids)
    assert task.vocab_size == encoder.network.config.vocab_size
    tokenizer.pad_token = tokenizer.mask_token = None
    causal = language_task(tokenizer, encoder.network, "causal", "right")
    assert (causal.mask_id, causal.pad_id) == (-1, 0)


def test_without_a_mask_a_model_is_measured_but_not_trained(tiny_mlm, tmp_path):
    """A suspect may be anything; only its own loss needs the mask."""
    folder = shutil.copytree(tiny_mlm, tmp_path / "maskless")
    build_tokenizer(folder, "causal")
    assert open_encoder(folder, device="cpu").encode(["some text"]).shape == (1, 32)
    with pytest.raises(ModelError, match="mask"):
        open_encoder(folder, device="cpu", purpose="train")


def test_a_loss_of_no_texts_is_refused(tiny_mlm):
    encoder = open_encoder(tiny_mlm, device="cpu", purpose="train")
    with pytest.raises(ValueError, match="no texts"):
        encoder.language_loss([], np.random.default_rng(0))
