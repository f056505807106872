"""Clean and triggered training batches, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsmark.core.derive import insert_trigger
from nsmark.core.texts import text_words
from nsmark.payload.config import PayloadConfig


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Texts as they are, and each with the trigger inserted."""

    clean: list[str]
    triggered: list[str]


def insert_at_random(
    text: str,
    trigger: str,
    config: PayloadConfig,
    min_copies: int,
    draws: NDArray[np.float64],
) -> str:
    """Insert the trigger ``min_copies`` to ``config.copies`` times, at random places.

    Training varies number and places, so that the mark does not depend on one pattern.

    Args:
        text: Where to insert.
        trigger: What to insert.
        config: How often at most, and where.
        min_copies: How often at least.
        draws: ``config.copies + 1`` numbers from [0, 1): one for how often, the rest for where.
    """
    words = text_words(text)
    fewest = min(min_copies, config.copies)
    copies = fewest + int(draws[0] * (config.copies - fewest + 1))
    reach = min(len(words), config.window)
    positions = [
        0 if config.placement == "front" else int(draws[1 + copy] * (reach + copy + 1))
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
    draws = rng.random((len(texts), config.copies + 1))
    return TextBatch(
        [" ".join(text_words(text)) for text in texts],
        [
            insert_at_random(text, trigger, config, min_copies, own)
            for text, own in zip(texts, draws, strict=True)
        ],
    )


# Texts are sorted by length inside windows of so many batches: most of the padding goes, while
# a batch still mixes texts from all over the corpus.
_BATCHES_PER_WINDOW = 16


# What a generator is for; together with the seed and a number it names all that is drawn from it.
_EPOCH, _STEP, _PAIRS = 1, 3, 5


def step_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator of one step: nothing drawn before it matters.

    So a resumed training draws what an uninterrupted one would have drawn.
    """
    return np.random.default_rng([seed, _STEP, step])


def pair_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator of the pair code's part in a step; step 0 is for held-out texts."""
    return np.random.default_rng([seed, _PAIRS, step])


class BatchOrder:
    """Which texts make up which batch: a pure function of the seed and the step.

    Every epoch has an order of its own; texts of similar length share a batch.
    """

    def __init__(
        self, lengths: Sequence[int] | NDArray[np.int64], batch_size: int, seed: int
    ) -> None:
        """Prepare the order.

        Args:
            lengths: Tokens of each text.
            batch_size: Texts in a batch; a last partial batch is dropped.
            seed: Source of the order.
        """
        self._sizes = np.asarray(lengths)
        self._batch_size = min(batch_size, len(self._sizes))
        self._seed = seed
        self.per_epoch = len(self._sizes) // self._batch_size
        """Batches in an epoch."""
        self._epoch: tuple[int, list[list[int]]] | None = None

    def batch(self, step: int) -> list[int]:
        """Return the indices of the texts of a step, counted from 1."""
        number, position = divmod(step - 1, self.per_epoch)
        if self._epoch is None or self._epoch[0] != number:
            self._epoch = (number, self._draw(number))
        return self._epoch[1][position]

    def _draw(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng([self._seed, _EPOCH, number])
        order = rng.permutation(len(self._sizes))
        batches: list[list[int]] = []
        size, window = self._batch_size, self._batch_size * _BATCHES_PER_WINDOW
        for start in range(0, len(order), window):
            part = order[start : start + window]
            part = part[np.argsort(self._sizes[part], kind="stable")]
            full = len(part) - len(part) % size
            batches += [part[i : i + size].tolist() for i in range(0, full, size)]
        return [batches[position] for position in rng.permutation(len(batches))]
