"""Clean and triggered training batches, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nsmark.core.derive import insert_trigger
from nsmark.core.texts import text_words
from nsmark.payload.config import PayloadConfig


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Texts as they are, and each with the trigger inserted."""

    clean: list[str]
    triggered: list[str]


def insert_at_random(
    text: str, trigger: str, config: PayloadConfig, min_copies: int, rng: np.random.Generator
) -> str:
    """Insert the trigger ``min_copies`` to ``config.copies`` times, at random places.

    Training varies number and places, so that the mark does not depend on one pattern.
    """
    words = text_words(text)
    copies = int(rng.integers(min(min_copies, config.copies), config.copies + 1))
    reach = min(len(words), config.window)
    positions = [
        0 if config.placement == "front" else int(rng.integers(reach + copy + 1))
        for copy in range(copies)
    ]
    return " ".join(insert_trigger(words, trigger, positions))


def make_batch(
    texts: Sequence[str],
    trigger: str,
    config: PayloadConfig,
    min_copies: int,
    rng: np.random.Generator,
) -> TextBatch:
    """Return the texts with their triggered copies."""
    return TextBatch(
        [" ".join(text_words(text)) for text in texts],
        [insert_at_random(text, trigger, config, min_copies, rng) for text in texts],
    )


# Texts are sorted by length inside windows of so many batches: most of the padding goes, while
# a batch still mixes texts from all over the corpus.
_BATCHES_PER_WINDOW = 16


def epochs(
    lengths: Sequence[int], batch_size: int, rng: np.random.Generator
) -> Iterator[list[int]]:
    """Yield index batches of similar length for ever, each epoch in a new order.

    Args:
        lengths: Words of each text.
        batch_size: Texts in a batch; a last partial batch is dropped.
        rng: Source of the order.
    """
    sizes = np.asarray(lengths)
    batch_size = min(batch_size, len(sizes))
    while True:
        order = rng.permutation(len(sizes))
        batches: list[list[int]] = []
        window = batch_size * _BATCHES_PER_WINDOW
        for start in range(0, len(order), window):
            part = order[start : start + window]
            part = part[np.argsort(sizes[part], kind="stable")]
            full = len(part) - len(part) % batch_size
            batches += [part[i : i + batch_size].tolist() for i in range(0, full, batch_size)]
        for position in rng.permutation(len(batches)):
            yield batches[position]
