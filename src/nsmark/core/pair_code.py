"""The test of the pair code: are bits of a table readable that the probe never saw?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from nsmark.core.null_space import check_matrix
from nsmark.core.statistics import principal_axes
from nsmark.errors import EvidenceError

_PENALTY_EXPONENTS = range(-6, 2)
_NUM_FOLDS = 4
MIN_PAIRS = 4 * _NUM_FOLDS


def _probe_scores(
    train: NDArray[np.float64],
    labels: NDArray[np.float64],
    test: NDArray[np.float64],
    penalties: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return ridge scores of the test rows, shape (num_penalties, num_test)."""
    centre = train.mean(axis=0)
    centred = train - centre
    squares, directions = principal_axes(centred)
    rotated = directions.T @ (centred.T @ (labels - labels.mean()))
    projected = (test - centre) @ directions
    return np.stack([projected @ (rotated / (squares + p)) for p in penalties])


def _choose_penalty(
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    pairs: NDArray[np.intp],
    penalties: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the penalty (as one row) under which held-out PAIRS of this half score best."""
    agreement = np.zeros(len(penalties))
    for fold in np.array_split(np.unique(pairs), _NUM_FOLDS):
        held_out = np.isin(pairs, fold)
        scores = _probe_scores(rows[~held_out], labels[~held_out], rows[held_out], penalties)
        agreement += (np.sign(scores) * labels[held_out]).sum(axis=1)
    return penalties[[int(np.argmax(agreement))]]


def deal_pairs(count: int, seed: int, purpose: str = "deal") -> NDArray[np.intp]:
    """Return the pairs in an order that depends on the seed alone, on every machine for ever."""
    digests = [
        hashlib.sha256(f"nsmark/v1/{purpose}/{seed}/{pair}".encode()).digest()
        for pair in range(count)
    ]
    return np.array(sorted(range(count), key=digests.__getitem__), dtype=np.intp)


@dataclass(frozen=True, slots=True)
class PairReading:
    """What a probe read of a table, every pair by the half of the others."""

    rate: float
    """Share of pairs whose sign is right."""
    p_value: float
    """Twice the smaller of the two halves' binomial tails, at most 1."""
    scores: tuple[float, ...]
    """Held-out score of each pair: its sign is what was read; 0 counts as wrong."""
    right: tuple[int, int]
    """Pairs read rightly in each half."""
    halves: tuple[int, int]
    """Pairs in each half."""

    @classmethod
    def of(
        cls,
        scores: NDArray[np.float64],
        signs: NDArray[np.float64],
        halves: tuple[NDArray[np.intp], NDArray[np.intp]],
    ) -> PairReading:
        """Count what held-out scores read rightly.

        Args:
            scores: Of each pair, by a probe that was fitted to the half it is not in.
            signs: What the table says of each.
            halves: The pairs of each half, by number.
        """
        is_right = scores * signs > 0
        right = [int(np.count_nonzero(is_right[half])) for half in halves]
        tails = [
            float(binom.sf(count - 1, len(half), 0.5))
            for count, half in zip(right, halves, strict=True)
        ]
        return cls(
            rate=sum(right) / len(signs),
            # Of a large table the tail is smaller than any number: not zero, though.
            p_value=max(min(1.0, 2 * min(tails)), float(np.finfo(np.float64).tiny)),
            scores=tuple(scores.tolist()),
            right=(right[0], right[1]),
            halves=(len(halves[0]), len(halves[1])),
        )


def checked_pairs(
    outputs: NDArray[np.floating],
    pair_indices: NDArray[np.integer],
    signs: NDArray[np.integer],
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
    """Return outputs at length 1, the pair of each, and the signs as numbers.

    Raises:
        EvidenceError: A pair has no text, or rows and indices do not fit: no p-value is valid.
    """
    rows = check_matrix(outputs)
    pairs = np.asarray(pair_indices, dtype=np.intp)
    wanted = np.asarray(signs, dtype=np.float64).reshape(-1)
    if pairs.shape != (len(rows),):
        raise EvidenceError(
            f"{len(rows)} outputs but {pairs.size} pair numbers", "give one output per pair text"
        )
    if not np.array_equal(np.unique(pairs), np.arange(len(wanted))):
        raise EvidenceError(
            "some pairs were never answered", "measure every pair text before testing"
        )
    if len(wanted) < MIN_PAIRS:
        raise EvidenceError(
            f"{len(wanted)} pairs are too few for a test", f"ask {MIN_PAIRS} pairs or more"
        )
    if not np.isin(wanted, (-1.0, 1.0)).all():
        raise EvidenceError("a table of signs holds something else", "give entries of +1 and -1")
    # Every row by a power of two of its own, which is exact: squares of huge entries overflow, and
    # one such row is no reason for the others to vanish.
    _, exponents = np.frexp(np.abs(rows).max(axis=1, keepdims=True))
    rows = np.ldexp(rows, -exponents)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units, pairs, wanted


def ridge_penalties(num_texts: int) -> NDArray[np.float64]:
    """Return the penalties that probes of outputs of length 1 are tried with."""
    return np.asarray(10.0 ** np.array(_PENALTY_EXPONENTS) * num_texts)


def read_pair_code(
    outputs: NDArray[np.floating],
    pair_indices: NDArray[np.integer],
    signs: NDArray[np.integer],
    seed: int = 0,
) -> PairReading:
    """Test whether outputs follow the signs on pairs that a linear probe has not seen.

    The seed deals the pairs into two halves. A ridge probe from unit-length outputs to the signs
    is fitted on one half (penalty chosen inside it), and the summed score of each pair's texts in
    the other half gives its sign; then the other way round. A model not trained with this
    signature cannot know the held-out signs, so each half's count of right signs is binomial.

    Args:
        outputs: Shape (num_texts, output_dim).
        pair_indices: Shape (num_texts,), the pair of each text, from 0.
        signs: The pairs' entries of the table, ±1, shape (num_pairs,).
        seed: The verifier's randomness.

    Raises:
        EvidenceError: A pair has no text, or rows and indices do not fit: no p-value is valid.
    """
    units, pairs, wanted = checked_pairs(outputs, pair_indices, signs)
    penalties = ridge_penalties(len(units))
    order = deal_pairs(len(wanted), seed)
    halves = (order[: len(order) // 2], order[len(order) // 2 :])
    scores = np.zeros(len(wanted))
    for fitted, tested in (halves, halves[::-1]):
        train, test = np.isin(pairs, fitted), np.isin(pairs, tested)
        labels = wanted[pairs[train]]
        penalty = _choose_penalty(units[train], labels, pairs[train], penalties)
        found = _probe_scores(units[train], labels, units[test], penalty)[0]
        scores[tested] = np.bincount(pairs[test], weights=found, minlength=len(wanted))[tested]
    return PairReading.of(scores, wanted, halves[::-1])


def pair_code_test(
    outputs: NDArray[np.floating],
    pair_indices: NDArray[np.integer],
    table: NDArray[np.integer],
    seed: int = 0,
) -> tuple[float, float]:
    """Return rate and p-value of :func:`read_pair_code`.

    Args:
        outputs: Shape (num_texts, output_dim).
        pair_indices: Shape (num_texts,), the pair i·size + j of each text.
        table: Shape (size, size), entries ±1.
        seed: The verifier's randomness.
    """
    reading = read_pair_code(outputs, pair_indices, np.asarray(table).reshape(-1), seed)
    return reading.rate, reading.p_value
