"""Changes of outputs, one row per text; what an API may do to every answer before it is sent.

All take rows of shape (num_texts, output_dim). What is random about a change is drawn once: the
triggered and the untriggered answers of one model pass through the same map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Change = Callable[[Rows], Rows]
"""A change that was drawn: it can be applied to any answers of the same model."""
Draw = Callable[[Rows, np.random.Generator], Change]
"""Draws what is random about a change, for outputs like the example."""


@dataclass(frozen=True, slots=True)
class OutputAlteration:
    """One way to change outputs."""

    name: str
    draw: Draw
    """Draws the change, given outputs that show the model's dimensions, sizes and directions."""


def linear_map(example: Rows, rng: np.random.Generator) -> Change:
    """Multiply by a matrix with entries from U[0, 1], as the paper's LL-LFEA does."""
    matrix = rng.uniform(0.0, 1.0, (example.shape[1], example.shape[1]))
    return lambda rows: rows @ matrix.T


def whitening(example: Rows, rng: np.random.Generator) -> Change:
    """Give all directions the same variance, then rotate."""
    mean = example.mean(axis=0)
    _, values, right = np.linalg.svd(example - mean, full_matrices=False)
    kept = values > 1e-9 * values[0]
    rotation, _ = np.linalg.qr(rng.standard_normal((example.shape[1], int(kept.sum()))))
    matrix = rotation @ (right[kept] * (np.sqrt(len(example)) / values[kept])[:, None])
    return lambda rows: (rows - mean) @ matrix.T


def unit_length(example: Rows, rng: np.random.Generator) -> Change:
    """Give every answer the length 1, as embedding servers do."""

    def change(rows: Rows) -> Rows:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1e-300))

    return change


def scale_and_sign(example: Rows, rng: np.random.Generator) -> Change:
    """Multiply every answer by its own random number of either sign."""

    def change(rows: Rows) -> Rows:
        scales = rng.uniform(0.2, 5.0, (len(rows), 1)) * rng.choice([-1.0, 1.0], (len(rows), 1))
        return np.asarray(rows * scales)

    return change


def noise_per_dimension(share: float) -> Draw:
    """Add noise in proportion to the standard deviation of every dimension."""

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        sizes = share * example.std(axis=0)
        return lambda rows: rows + sizes * rng.standard_normal(rows.shape)

    return draw


def isotropic_noise(share: float) -> Draw:
    """Add noise of one size everywhere, in proportion to the deviation of all entries together.

    That counts how dimensions differ from one another, too: where a model answers nearly the same
    to all texts, it is far more than the deviation between texts.
    """

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        size = share * float(example.std())
        return lambda rows: rows + size * rng.standard_normal(rows.shape)

    return draw


def principal_cut(dimensions: int) -> Draw:
    """Keep the directions of most variance."""

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        _, _, right = np.linalg.svd(example - example.mean(axis=0), full_matrices=False)
        kept = right[:dimensions]
        return lambda rows: rows @ kept.T

    return draw


def random_cut(dimensions: int) -> Draw:
    """Keep random directions."""

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        count = min(dimensions, example.shape[1])
        kept, _ = np.linalg.qr(rng.standard_normal((example.shape[1], count)))
        return lambda rows: rows @ kept

    return draw


def rounded(levels: int) -> Draw:
    """Round to so many levels between the extremes, as an API that saves bytes does."""

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        most = max(float(np.abs(example).max()), 1e-300)
        step = 2 * most / (levels - 1)
        return lambda rows: np.clip(np.round(rows / step), -(levels // 2), levels // 2) * step

    return draw


def signs(example: Rows, rng: np.random.Generator) -> Change:
    """Keep the sign of every entry alone."""
    return lambda rows: np.where(rows >= 0, 1.0, -1.0)


def chain(
    *draws: Draw,
) -> Draw:
    """Do one change after the other."""

    def draw(example: Rows, rng: np.random.Generator) -> Change:
        changes = []
        for each in draws:
            change = each(example, rng)
            example = change(example)
            changes.append(change)

        def together(rows: Rows) -> Rows:
            for change in changes:
                rows = change(rows)
            return rows

        return together

    return draw


def _named(
    draws: Mapping[str, Draw],
) -> dict[str, OutputAlteration]:
    return {name: OutputAlteration(name, draw) for name, draw in draws.items()}


OUTPUT_ALTERATIONS: dict[str, OutputAlteration] = _named(
    {
        "linear map": linear_map,
        "linear map, unit length": chain(linear_map, unit_length),
        "linear map, scale and sign per text": chain(linear_map, scale_and_sign),
        "whitened": whitening,
        "3 % noise per dimension, linear map": chain(noise_per_dimension(0.03), linear_map),
        "10 % noise per dimension, linear map": chain(noise_per_dimension(0.1), linear_map),
        "3 % isotropic noise, linear map": chain(isotropic_noise(0.03), linear_map),
        "10 % isotropic noise, linear map": chain(isotropic_noise(0.1), linear_map),
        "8 bits": rounded(255),
        "signs": signs,
    }
)
"""Changes that leave the number of dimensions alone, by name."""
