"""Betting on the signs of a pair code, one after the other.

The test of :mod:`nsmark.core.pair_code` counts signs that are read rightly, and counts those that
a filter of queries has silenced as well: they fall as coins do, and drown the rest. Here nothing is
counted. A capital of 1 is staked on one sign after another; each stake may depend on every answer
of the suspect and on the signs that were bet on before, and is larger where they leave less doubt.
To a model that was not trained with the signature every further sign is a fair coin, so no way of
staking makes the capital grow on average: it reaches 1/p with a probability of at most p (Markov's
inequality; Shafer, Testing by betting, 2021). The mean of several such capitals has the same
property, so orders, penalties and ways of staking need not be chosen: the capital is divided among
all of them.

What is told is how many powers of ten were won, no more: the exact capital is a fingerprint of the
table, from which some fifty signs could be found by trying.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from nsmark.core.pair_code import checked_pairs, deal_pairs, ridge_penalties
from nsmark.core.statistics import principal_axes
from nsmark.errors import EvidenceError

Matrix = NDArray[np.float64]

# How soon doubt gives way to a full stake.
_BOLDNESS = np.array([0.25, 0.5, 1.0, 2.0])
# Never all of the capital: one wrong sign would end the game.
_LARGEST_STAKE = 0.99
# Shares of the words whose pairs are bet on, those first that move the outputs most: words that a
# filter takes out of the queries move nothing.
_SHARES_OF_WORDS = (1.0, 0.75, 0.5, 0.375, 0.25)
_NUM_ORDERS = 8
# Of large tables fewer orders are tried, for time; the signs are many there.
_USUAL_PAIRS = 512
_MOST_DECADES = 300
# Answers of length 1 that differ by less are one answer and the rounding of it.
_CONSTANT_VARIANCE = 1e-24


@dataclass(frozen=True, slots=True)
class PairWager:
    """What betting on the signs of a table has won."""

    decades: int
    """Powers of ten that a capital of 1 has become, rounded down; 0 where it did not grow."""
    p_value: float
    """One divided by that: the chance of a model that does not know the table to win as much is
    no larger."""


def wager_on_pairs(
    outputs: NDArray[np.floating],
    pair_indices: NDArray[np.integer],
    signs: NDArray[np.integer],
    size: int,
    seed: int = 0,
) -> PairWager:
    """Bet on the signs of a pair code, and return what is won.

    Args:
        outputs: Shape (num_texts, output_dim).
        pair_indices: Shape (num_texts,), the pair of each text, from 0: row · size + column.
        signs: The pairs' entries of the table, ±1, shape (num_pairs,): all or the first ones.
        size: Words on each side.
        seed: The verifier's randomness; the orders follow from it.

    Raises:
        EvidenceError: A pair has no text, or rows, indices and sizes do not fit.
    """
    units, pairs, wanted = checked_pairs(outputs, pair_indices, signs)
    if len(wanted) > size * size:
        raise EvidenceError(
            f"{len(wanted)} signs of a table of {size} × {size}", "give the table's own size"
        )
    rows = units - units.mean(axis=0)
    variance = float(np.mean(np.sum(rows**2, axis=1)))
    if variance < _CONSTANT_VARIANCE:
        return PairWager(0, 1.0)
    squares, directions = principal_axes(rows)
    rotated = rows @ directions
    sums = np.zeros((len(wanted), rotated.shape[1]))
    np.add.at(sums, pairs, rotated)
    counts = np.bincount(pairs, minlength=len(wanted))
    heard = _heard(sums, counts, size, variance)
    num_orders = max(1, min(_NUM_ORDERS, _NUM_ORDERS * _USUAL_PAIRS // len(wanted)))
    orders = [deal_pairs(len(wanted), seed, f"wager-{number}") for number in range(num_orders)]
    capitals = []
    for penalty in ridge_penalties(len(units)):
        # Of two pairs: how much a probe fitted to one says of the other.
        kernel = (sums / (squares + penalty)) @ sums.T
        for order in orders:
            for share in heard:
                part = order[share[order]]
                capitals.append(log_capitals(kernel[np.ix_(part, part)], wanted[part]))
    log_capital = float(logsumexp(capitals)) - math.log(len(_BOLDNESS) * len(capitals))
    decades = max(0, math.floor(log_capital / math.log(10)))
    # Of a large table the chance is smaller than any number: not zero, though.
    return PairWager(decades, float(f"1e-{min(decades, _MOST_DECADES)}"))


def log_capitals(kernel: Matrix, signs: Matrix) -> Matrix:
    """Return what 1 becomes when every sign is bet on in order, for each boldness.

    Args:
        kernel: Shape (num_pairs, num_pairs), of the answers alone; row and column by the order.
        signs: ±1 in the same order. A stake sees those before it.
    """
    past = np.tril(kernel, -1)
    scores = past @ signs
    # What the score would be, give or take, if the signs before were tossed.
    sizes = np.sqrt(np.einsum("ij,ij->i", past, past))
    confidence = np.divide(scores, sizes, out=np.zeros_like(scores), where=sizes > 0)
    stakes = np.tanh(np.outer(_BOLDNESS, confidence)).clip(-_LARGEST_STAKE, _LARGEST_STAKE)
    return np.asarray(np.log1p(stakes * signs).sum(axis=1))


def _heard(
    sums: Matrix, counts: NDArray[np.intp], size: int, variance: float
) -> list[NDArray[np.bool_]]:
    """Return of which pairs both words are among those that move the outputs most.

    Signs take no part in it: whatever is left out, the others remain fair coins.
    """
    rows, columns = np.divmod(np.arange(len(sums)), size)
    effects = np.full(2 * size, -np.inf)
    for word in range(2 * size):
        own = (rows == word) if word < size else (columns == word - size)
        texts = int(counts[own].sum())
        if texts:
            # Of a mean of so many texts chance alone gives the second term.
            effects[word] = np.sum(sums[own].sum(axis=0) ** 2) / texts**2 - variance / texts
    rank = np.argsort(np.argsort(-effects, kind="stable"), kind="stable")
    num_asked = int(np.isfinite(effects).sum())
    shares = []
    for share in _SHARES_OF_WORDS:
        is_heard = rank < round(share * num_asked)
        shares.append(is_heard[rows] & is_heard[size + columns])
    return shares
