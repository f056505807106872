"""What may happen to a question on its way: words deleted, moved, cut off; no model is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

QueryChange = Callable[[list[str], np.random.Generator], list[str]]
WINDOW = 5


def unrepeated(words: list[str], rng: np.random.Generator) -> list[str]:
    """Delete second and later copies of any word."""
    return list(dict.fromkeys(words))


def thinned(share: float) -> QueryChange:
    """Delete each word with a probability; one is left."""

    def change(words: list[str], rng: np.random.Generator) -> list[str]:
        kept = rng.random(len(words)) >= share
        return [word for word, keep in zip(words, kept, strict=True) if keep] or words[:1]

    return change


def shuffled(words: list[str], rng: np.random.Generator) -> list[str]:
    """Shuffle the words within windows of five."""
    moved: list[str] = []
    for start in range(0, len(words), WINDOW):
        part = words[start : start + WINDOW]
        moved += [part[place] for place in rng.permutation(len(part))]
    return moved


def without_every_fifth(words: list[str], rng: np.random.Generator) -> list[str]:
    """Drop every fifth word."""
    return [word for place, word in enumerate(words, 1) if place % WINDOW] or words[:1]


QUERY_CHANGES: dict[str, QueryChange] = {
    "as they are": lambda words, rng: words,
    "repeated words deleted": unrepeated,
    "each word deleted with 10 %": thinned(0.1),
    "each word deleted with 30 %": thinned(0.3),
    "each word deleted with 50 %": thinned(0.5),
    "lower case": lambda words, rng: [word.lower() for word in words],
    "cut to 32 words": lambda words, rng: words[:32],
    "cut to 16 words": lambda words, rng: words[:16],
    "word order shuffled in windows of 5": shuffled,
    "every fifth word dropped": without_every_fifth,
    "repeated words deleted, word order shuffled": lambda words, rng: shuffled(
        unrepeated(words, rng), rng
    ),
}


def altered(texts: Sequence[str], change: str) -> list[str]:
    """Return texts as they reach the model after a change."""
    rng = np.random.default_rng(21)
    return [" ".join(QUERY_CHANGES[change](text.split(), rng)) for text in texts]
