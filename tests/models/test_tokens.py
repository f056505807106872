from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.models.tokens import Tokens, pad_tokens, to_device

CPU = torch.device("cpu")
PAD = 99
sides = st.sampled_from(["left", "right"])
sequences_of_tokens = st.lists(
    st.lists(st.integers(0, 50), min_size=1, max_size=9).map(lambda ids: np.array(ids, np.int32)),
    min_size=1,
    max_size=8,
)


def texts_of(tokens: Tokens) -> list[list[int]]:
    """What the mask leaves of each row."""
    pairs = zip(tokens.input_ids, tokens.attention_mask, strict=True)
    return [ids[mask == 1].tolist() for ids, mask in pairs]


@given(sequences=sequences_of_tokens, side=sides)
@settings(max_examples=60, deadline=None)
def test_padding_fills_up_on_its_side_and_nowhere_else(sequences, side):
    tokens = pad_tokens(sequences, PAD, side)
    longest = max(len(sequence) for sequence in sequences)
    assert tokens.input_ids.shape == tokens.attention_mask.shape == (len(sequences), longest)
    assert tokens.input_ids.dtype == tokens.attention_mask.dtype == torch.int64
    assert len(tokens) == len(sequences)
    for row, sequence in enumerate(sequences):
        ids, missing = sequence.tolist(), longest - len(sequence)
        before, behind = (missing, 0) if side == "left" else (0, missing)
        assert tokens.input_ids[row].tolist() == [PAD] * before + ids + [PAD] * behind
        mask = [0] * before + [1] * len(ids) + [0] * behind
        assert tokens.attention_mask[row].tolist() == mask


@given(sequences=sequences_of_tokens, side=sides)
@settings(max_examples=40, deadline=None)
def test_a_batch_is_full_if_and_only_if_all_texts_are_equally_long(sequences, side):
    tokens = pad_tokens(sequences, PAD, side)
    assert tokens.is_full is (len({len(sequence) for sequence in sequences}) == 1)
    assert tokens.is_full is bool((tokens.attention_mask == 1).all())


@given(sequences=sequences_of_tokens, side=sides, data=st.data())
@settings(max_examples=60, deadline=None)
def test_rows_and_picked_rows_are_those_asked_for(sequences, side, data):
    tokens = pad_tokens(sequences, PAD, side)
    texts = [sequence.tolist() for sequence in sequences]
    places = st.integers(0, len(texts))
    start, stop = sorted((data.draw(places), data.draw(places)))
    assert texts_of(tokens.rows(start, stop)) == texts[start:stop]
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(texts))), min_size=1)))
    picked = tokens.pick(chosen)
    assert texts_of(picked) == [texts[row] for row in chosen]
    # A batch that was padded may have rows that were not: only the reverse would be an error.
    assert not picked.is_full or bool((picked.attention_mask == 1).all())


def test_all_rows_are_the_batch_itself():
    tokens = pad_tokens([np.array([1, 2]), np.array([3])], PAD, "right")
    assert tokens.rows(0, 2) is tokens
    assert tokens.pick([0, 1]) is tokens
    assert torch.equal(tokens.pick([1, 0]).input_ids, tokens.input_ids.flip(0))


def test_nothing_is_copied_to_where_it_is_already():
    tokens = pad_tokens([np.array([1, 2]), np.array([3])], PAD, "right").to(CPU)
    assert to_device(tokens.input_ids, CPU) is tokens.input_ids
    assert texts_of(tokens) == [[1, 2], [3]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_without_tokens_is_all_padding(side):
    tokens = pad_tokens([np.array([], dtype=np.int32), np.array([5, 6])], PAD, side)
    assert texts_of(tokens) == [[], [5, 6]]
    assert not tokens.is_full
