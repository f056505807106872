"""Batches of token sequences as plain arrays, and reading hidden states from them; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import ConfigError
from nsmark.models.folder import POOLINGS

TokenIds = NDArray[np.int32]


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield index batches of similar length, each within a budget of padded tokens."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    start = 0
    while start < len(order):
        size = max(1, tokens_per_batch // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def equal_length_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield the same, but never two lengths together: for models that cannot tell padding."""
    for batch in length_batches(lengths, tokens_per_batch):
        for length in dict.fromkeys(lengths[index] for index in batch):
            yield [index for index in batch if lengths[index] == length]


def pad_arrays(
    sequences: Sequence[TokenIds], pad_id: int, side: str, length: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Fill token sequences up on one side.

    Args:
        sequences: At least one.
        pad_id: What is filled in.
        side: ``left`` or ``right``.
        length: Fill up to so many tokens at least.

    Returns:
        (token ids, which of them are text), both of shape (number of sequences, length).
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    longest = max(length, int(lengths.max()))
    starts = longest - lengths if side == "left" else np.zeros_like(lengths)
    columns = np.arange(longest)
    mask = (columns >= starts[:, None]) & (columns < (starts + lengths)[:, None])
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = np.concatenate(sequences)
    return ids, mask


def pool_array(
    hidden: NDArray[np.floating], mask: NDArray[np.bool_], pooling: str
) -> NDArray[np.float32]:
    """Reduce (batch, length, width) hidden states to one vector per text; padding is ignored.

    The same as :func:`nsmark.models.encoder.pool`, on arrays.
    """
    if pooling in ("first", "last"):
        position = mask.argmax(axis=1)
        if pooling == "last":
            position = position + mask.sum(axis=1) - 1
        chosen = hidden[np.arange(len(hidden)), position]
    elif pooling == "mean":
        # Selected and not multiplied: what stands on padding may be anything, NaN included.
        total = np.where(mask[..., None], hidden, 0).sum(axis=1, dtype=np.float32)
        chosen = total / mask.sum(axis=1, keepdims=True)
    elif pooling == "max":
        chosen = np.where(mask[..., None], hidden, -np.inf).max(axis=1)
    else:
        raise ConfigError("pooling", pooling, f"must be one of {', '.join(POOLINGS)}")
    return np.asarray(chosen, dtype=np.float32)
