"""Changes of outputs, one row per text; what an API may do to every answer before it is sent.

All take rows of shape (num_texts, output_dim). What is random about a change is drawn once: the
triggered and the untriggered answers of one model pass through the same map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nsmark.transforms.changes import (
    Bfloat16,
    Linear,
    Noise,
    OutputChange,
    Rounded,
    Rows,
    ScaleAndSign,
    Signs,
    UnitLength,
)

Change = Callable[[Rows], Rows]
"""A change that was drawn: it can be applied to any answers of the same model."""
Draw = Callable[[Rows, np.random.Generator], Change]
"""Draws what is random about a change, for outputs like the example."""
DrawRecord = Callable[[Rows, np.random.Generator], OutputChange]
"""Draws a change that can be written down."""


@dataclass(frozen=True, slots=True)
class OutputAlteration:
    """One way to change outputs."""

    name: str
    draw: Draw
    """Draws the change, given outputs that show the model's dimensions, sizes and directions."""


def linear_map(example: Rows, rng: np.random.Generator) -> Linear:
    """Multiply by a matrix with entries from U[0, 1], as the paper's LL-LFEA does."""
    return Linear(rng.uniform(0.0, 1.0, (example.shape[1], example.shape[1])))


def near_singular_map(condition: float) -> DrawRecord:
    """Rotate, shrink directions by factors from 1 to 1 / condition, and rotate again."""

    def draw(example: Rows, rng: np.random.Generator) -> Linear:
        dim = example.shape[1]
        first, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        last, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        return Linear((last * np.geomspace(1.0, 1.0 / condition, dim)) @ first)

    return draw


def whitening(example: Rows, rng: np.random.Generator) -> Linear:
    """Give all directions the same variance, then rotate."""
    return _whitening(example, rng, 0.0)


def damped_whitening(ridge: float) -> DrawRecord:
    """Whiten with so much added to every direction's variance, as a share of their mean.

    It keeps directions in which hardly anything varies from being blown up.
    """
    return lambda example, rng: _whitening(example, rng, ridge)


def _whitening(example: Rows, rng: np.random.Generator, ridge: float) -> Linear:
    mean = example.mean(axis=0)
    _, values, right = np.linalg.svd(example - mean, full_matrices=False)
    kept = values > 1e-9 * values[0]
    damped = np.sqrt(values**2 + ridge * np.sum(values**2) / example.shape[1])[kept]
    rotation, _ = np.linalg.qr(rng.standard_normal((example.shape[1], int(kept.sum()))))
    matrix = rotation @ (right[kept] * (np.sqrt(len(example)) / damped)[:, None])
    return Linear(matrix, -matrix @ mean)


def unit_length(example: Rows, rng: np.random.Generator) -> UnitLength:
    """Give every answer the length 1, as embedding servers do."""
    return UnitLength()


def scale_and_sign(example: Rows, rng: np.random.Generator) -> ScaleAndSign:
    """Multiply every answer by its own random number of either sign."""
    return ScaleAndSign(_seed(rng))


def noise_per_dimension(share: float) -> DrawRecord:
    """Add noise in proportion to the standard deviation of every dimension."""
    return lambda example, rng: Noise(share * example.std(axis=0), _seed(rng))


def isotropic_noise(share: float) -> DrawRecord:
    """Add noise of one size everywhere, in proportion to the deviation of all entries together.

    That counts how dimensions differ from one another, too: where a model answers nearly the same
    to all texts, it is far more than the deviation between texts.
    """
    return lambda example, rng: Noise(np.array([share * float(example.std())]), _seed(rng))


def principal_cut(dimensions: int) -> DrawRecord:
    """Keep the directions of most variance."""

    def draw(example: Rows, rng: np.random.Generator) -> Linear:
        _, _, right = np.linalg.svd(example - example.mean(axis=0), full_matrices=False)
        return Linear(right[:dimensions])

    return draw


def random_cut(dimensions: int) -> DrawRecord:
    """Keep random directions."""

    def draw(example: Rows, rng: np.random.Generator) -> Linear:
        count = min(dimensions, example.shape[1])
        kept, _ = np.linalg.qr(rng.standard_normal((example.shape[1], count)))
        return Linear(kept.T)

    return draw


def first_cut(dimensions: int) -> DrawRecord:
    """Keep the first entries."""
    return lambda example, rng: Linear(np.eye(min(dimensions, example.shape[1]), example.shape[1]))


def expansion(dimensions: int) -> DrawRecord:
    """Turn outputs into a random subspace of a larger space: all lengths and angles stay."""

    def draw(example: Rows, rng: np.random.Generator) -> Linear:
        dim = example.shape[1]
        columns, _ = np.linalg.qr(rng.standard_normal((max(dimensions, dim), dim)))
        return Linear(columns)

    return draw


def rounded(levels: int) -> DrawRecord:
    """Round to so many levels between the extremes, as an API that saves bytes does."""

    def draw(example: Rows, rng: np.random.Generator) -> Rounded:
        most = max(float(np.abs(example).max()), 1e-300)
        return Rounded(np.array([2 * most / (levels - 1)]), levels)

    return draw


def rounded_per_dimension(levels: int) -> DrawRecord:
    """Round to so many levels between the extremes of every dimension."""

    def draw(example: Rows, rng: np.random.Generator) -> Rounded:
        most = np.maximum(np.abs(example).max(axis=0), 1e-300)
        return Rounded(2 * most / (levels - 1), levels)

    return draw


def bfloat16(example: Rows, rng: np.random.Generator) -> Bfloat16:
    """Round to bfloat16."""
    return Bfloat16()


def signs(example: Rows, rng: np.random.Generator) -> Signs:
    """Keep the sign of every entry alone."""
    return Signs()


def chain(*draws: Draw) -> Draw:
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


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))


def _named(draws: Mapping[str, Draw]) -> dict[str, OutputAlteration]:
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
