"""Which of many signatures do outputs follow? One set of texts for all of them.

The verifier's randomness chooses texts and pairs, never a key and never an answer, so that the
answers say nothing about the signs of any table: for a model that was not trained with a signature
its signs are coins thrown after the answers, and each half's count of right ones is binomial. The
p-value is exact for every key by itself, whatever other keys were asked with it; who looks at many
keys multiplies by their number.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from nsmark.core.bits import bytes_to_signs
from nsmark.core.derive import stream
from nsmark.core.null_space import check_matrix
from nsmark.core.pair_code import PairReading
from nsmark.errors import EvidenceError, TextPoolError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.pairs import derive_pair_texts, insert_pair
from nsmark.verification.questions import seed_from
from nsmark.verification.verdict import MAX_PAIR_P_VALUE

_NUM_FOLDS = 4
_PENALTIES = 10.0 ** np.arange(-6, 2)
# Of a covariance matrix that is decomposed in seconds.
_MOST_DIMENSIONS = 2048
_BLOCK_ROWS = 4096
# Answers whose directions differ by less are one answer: float32 noise lies below it.
_CONSTANT_VARIANCE = 1e-13


@dataclass(frozen=True, slots=True)
class PairCode:
    """Words and table of a signature: little, where a key is megabytes."""

    words: tuple[str, ...] = field(repr=False)
    """A₀…, then B₀…"""
    signs: NDArray[np.int8] = field(repr=False)
    """The table, row by row."""

    @classmethod
    def of(cls, key: WatermarkKey) -> PairCode | None:
        """Return a key's pair code, None if it has none."""
        if key.pairs is None:
            return None
        return cls(key.pairs.words, key.pairs.signs(key.signature).astype(np.int8))


@dataclass(frozen=True, slots=True)
class PairChoice:
    """The pairs of words that are asked, in the order drawn, and where each table finds its own."""

    pairs: tuple[tuple[str, str], ...] = field(repr=False)
    """Different ones; which word comes first means nothing."""
    entries: tuple[NDArray[np.intp], ...] = field(repr=False)
    """For each table the entries that are asked, in the order drawn."""
    numbers: tuple[NDArray[np.intp], ...] = field(repr=False)
    """For each table the places of these entries in :attr:`pairs`."""


def identification_seed(randomness: bytes) -> bytes:
    """Return what texts, pairs and halves follow from.

    Raises:
        UsageError: So little can be guessed.
    """
    return seed_from(randomness, "identify")


def least_pairs(num_keys: int) -> int:
    """Return how many pairs of a key must be asked for its mark to be found if all are right."""
    smallest_tail = MAX_PAIR_P_VALUE / num_keys / 2
    return 2 * int(np.ceil(-np.log2(smallest_tail)))


def choose_pairs(
    codes: Sequence[PairCode], seed: bytes, pairs_per_key: int | None = None
) -> PairChoice:
    """Choose which pairs of words are asked.

    Every pair there could be is given a rank by the seed alone, and each table takes its own first
    ones. So tables with words in common take the same pairs, and no key that somebody files can
    change which pairs another one is asked.

    Args:
        codes: The tables, at least one.
        seed: The verifier's randomness.
        pairs_per_key: How many entries of each table; by default all.
    """
    words = sorted({word for code in codes for word in code.words})
    places = {word: place for place, word in enumerate(words)}
    tables = [_unordered_pairs(code, places) for code in codes]
    every = np.unique(np.concatenate(tables))
    pairs = [(words[number // len(words)], words[number % len(words)]) for number in every.tolist()]
    prefix = b"nsmark/v1/identify-rank\x00" + seed
    digests = [hashlib.sha256(prefix + " ".join(pair).encode()).digest() for pair in pairs]
    order = sorted(range(len(pairs)), key=digests.__getitem__)
    ranks = np.empty(len(pairs), np.intp)
    ranks[order] = np.arange(len(pairs))
    entries, taken = [], []
    for table in tables:
        own = ranks[np.searchsorted(every, table)]
        entries.append(np.argsort(own)[:pairs_per_key])
        taken.append(own[entries[-1]])
    asked = np.unique(np.concatenate(taken))
    return PairChoice(
        tuple(pairs[order[rank]] for rank in asked.tolist()),
        tuple(entries),
        tuple(np.searchsorted(asked, own) for own in taken),
    )


def _unordered_pairs(code: PairCode, places: dict[str, int]) -> NDArray[np.int64]:
    """Return one number for each entry's two words, in whichever order they come."""
    numbers = np.array([places[word] for word in code.words], np.int64)
    size = len(numbers) // 2
    first, second = np.meshgrid(numbers[:size], numbers[size:], indexing="ij")
    unordered = np.minimum(first, second) * len(places) + np.maximum(first, second)
    return np.asarray(unordered.reshape(-1), np.int64)


def choice_texts(choice: PairChoice, seed: bytes, pool: Sequence[str], repeats: int) -> list[str]:
    """Return the texts to ask: every pair once, then every pair again, and so on.

    Args:
        choice: The pairs.
        seed: The verifier's randomness.
        pool: Published texts, normalised; walked again where it has too few.
        repeats: Texts for each pair.
    """
    count = repeats * len(choice.pairs)
    distinct = len(set(pool))
    if not distinct:
        raise TextPoolError("the pool holds no text", "give a pool with texts (--pool)")
    base: list[str] = []
    for walk in itertools.count():
        if len(base) >= count:
            break
        walk_seed = seed + walk.to_bytes(4, "big")
        base += derive_pair_texts(walk_seed, pool, min(count - len(base), distinct))
    return [
        insert_pair(text, number, choice.pairs[number % len(choice.pairs)], seed)
        for number, text in enumerate(base)
    ]


class PairReader:
    """A suspect's answers, made ready once: after that a table is tested in a moment.

    The probe of :func:`nsmark.core.pair_code.read_pair_code` is fitted on one key's rows, with a
    decomposition for each fold. Here the spread of ALL answers, in which no sign takes part, is
    decomposed once and stands in for that of each key's rows. What is read is nearly the same, and
    the p-value as exact: held-out signs are still unknown to the probe.
    """

    def __init__(self, outputs: NDArray[np.floating], num_pairs: int, seed: bytes) -> None:
        """Decompose the answers.

        Args:
            outputs: One row for each text of :func:`choice_texts`.
            num_pairs: Pairs asked.
            seed: The verifier's randomness; adds up columns where there are very many.

        Raises:
            EvidenceError: Other rows than texts, NaN, or one and the same answer to everything.
        """
        if outputs.ndim != 2 or len(outputs) == 0 or len(outputs) % num_pairs:
            raise EvidenceError(
                f"outputs of shape {outputs.shape} for {num_pairs} pairs of words",
                "the suspect must answer every text with one row of numbers",
            )
        rows = _directions(outputs, seed)
        mean = rows.mean(axis=0)
        spread = rows.T @ rows / len(rows) - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(spread)
        if values[-1] <= _CONSTANT_VARIANCE:
            raise EvidenceError(
                "the suspect gives every text the same output",
                "check the address: this is no model, or its answers are cut",
            )
        sums = rows.reshape(-1, num_pairs, rows.shape[1]).sum(axis=0)
        self._sums = (sums - sums.mean(axis=0)) @ vectors
        self._weights = 1 / (np.maximum(values, 0) + _PENALTIES[:, None])

    def read(self, numbers: NDArray[np.intp], signs: NDArray[np.int8]) -> PairReading:
        """Test whether the answers follow a table on pairs that the probe has not seen.

        Args:
            numbers: The pairs that the table was asked, in the order drawn, which deals them.
            signs: What the table says of each.
        """
        rows = self._sums[numbers]
        rows -= rows.mean(axis=0)
        wanted = signs.astype(np.float64)
        halves = (np.arange(0, len(rows), 2), np.arange(1, len(rows), 2))
        scores = np.zeros(len(rows))
        for fitted, tested in (halves, halves[::-1]):
            weights = self._choose_weights(rows[fitted], wanted[fitted])
            scores[tested] = rows[tested] @ (weights * _moment(rows[fitted], wanted[fitted]))
        return PairReading.of(scores, wanted, halves[::-1])

    def _choose_weights(
        self, rows: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the weights under which held-out pairs of this half score best."""
        along, size = np.zeros(len(self._weights)), np.zeros(len(self._weights))
        for fold in range(_NUM_FOLDS):
            held_out = np.arange(len(rows)) % _NUM_FOLDS == fold
            moment = _moment(rows[~held_out], wanted[~held_out])
            scores = (rows[held_out] * moment) @ self._weights.T
            along += wanted[held_out] @ scores
            size += (scores**2).sum(axis=0)
        quality = np.divide(along, np.sqrt(size), out=np.zeros_like(along), where=size > 0)
        chosen: NDArray[np.float64] = self._weights[int(np.argmax(quality))]
        return chosen


def _moment(rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows.T @ (wanted - wanted.mean()))


def _directions(outputs: NDArray[np.floating], seed: bytes) -> NDArray[np.float64]:
    """Return unit-length rows; of very many columns, groups added up with random signs."""
    width = outputs.shape[1]
    fold = None
    if width > _MOST_DIMENSIONS:
        groups = np.frombuffer(stream(seed, "identify-groups", 4 * width), "<u4")
        signs = bytes_to_signs(stream(seed, "identify-signs", -(-width // 8)))[:width]
        places = (np.arange(width), groups % _MOST_DIMENSIONS)
        fold = csr_array((signs.astype(np.float64), places), (width, _MOST_DIMENSIONS))
    blocks = []
    for start in range(0, len(outputs), _BLOCK_ROWS):
        rows = check_matrix(outputs[start : start + _BLOCK_ROWS])
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
        blocks.append(units if fold is None else np.asarray(units @ fold))
    return np.concatenate(blocks)
