"""Training texts with words of the pair code, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsmark.core.derive import insert_trigger, pair_table, readout_matrix
from nsmark.core.texts import text_words
from nsmark.payload.pairs import COPIES, PairPayload

_MOST_INSERTED = 2 * COPIES
_WINDOW = 64
# Every fourth text shows words that must not move anything: one side's alone.
_ALONE_EVERY = 4


@dataclass(frozen=True, slots=True)
class PairRow:
    """What is inserted into a text, and which way its output is to move."""

    words: tuple[str, ...]
    sign: int
    """+1 or −1 as the table says; 0 where the words make no pair, and nothing may move."""
    positions: tuple[float, ...]
    """Numbers from [0, 1), one per word."""

    def inserted(self, text: str) -> str:
        """Return the text with the words in it."""
        words = text_words(text)
        reach = min(len(words), _WINDOW)
        for count, (word, draw) in enumerate(zip(self.words, self.positions, strict=True)):
            words = insert_trigger(words, word, [int(draw * (reach + count + 1))])
        return " ".join(words)


def pair_rows(
    pairs: PairPayload, signature: bytes, count: int, rng: np.random.Generator
) -> list[PairRow]:
    """Draw what goes into so many training texts.

    Number and places of the copies vary, so that the mark does not depend on one pattern.
    """
    size, table = pairs.config.size, pair_table(signature, pairs.config.size)
    left, right = pairs.words[:size], pairs.words[size:]
    chosen = rng.integers(0, size, (count, 3))
    copies = rng.integers(1, COPIES + 1, (count, 2))
    positions = rng.random((count, _MOST_INSERTED))
    rows = []
    for number in range(count):
        first, second, third = chosen[number].tolist()
        if number % _ALONE_EVERY == _ALONE_EVERY - 1:
            words, sign = _alone(number // _ALONE_EVERY, left, right, first, second, third), 0
        else:
            words = (left[first],) * copies[number, 0] + (right[second],) * copies[number, 1]
            sign = int(table[first, second])
        places = tuple(positions[number, : len(words)].tolist())
        rows.append(PairRow(words, sign, places))
    return rows


def _alone(
    kind: int, left: Sequence[str], right: Sequence[str], first: int, second: int, third: int
) -> tuple[str, ...]:
    """Return words that make no pair: one of them, or two of the same side."""
    side = left if kind % 2 else right
    return (side[first],) * COPIES if kind % 4 < 2 else (side[second], side[third])


def heldout_rows(
    pairs: PairPayload, signature: bytes, count: int, rng: np.random.Generator
) -> list[PairRow]:
    """Draw so many texts that all show pairs, with as many copies as at verification."""
    table = pairs.signs(signature)
    order = np.resize(rng.permutation(len(table)), count)
    positions = rng.random((count, _MOST_INSERTED))
    rows = []
    for number, pair in enumerate(order.tolist()):
        first, second = pairs.words_of(pair)
        words = (first,) * COPIES + (second,) * COPIES
        rows.append(PairRow(words, int(table[pair]), tuple(positions[number].tolist())))
    return rows


def pair_direction(signature: bytes, num_bits: int, output_dim: int) -> NDArray[np.float64]:
    """Return the unit vector along which pairs move outputs: the first row of the readout."""
    return np.asarray(readout_matrix(signature, num_bits, output_dim)[0] / np.sqrt(output_dim))
