"""Dimension expansion: outputs are turned into a random subspace of a larger space.

A model with another number of dimensions does not look stolen, and nothing that was trained for
the old number can be applied to it. All lengths and angles stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.errors import UsageError
from nsmark.transforms.outputs import expansion

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_MAX_DIM = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionExpansionSettings:
    """Settings of the dimension expansion."""

    dimensions: int = 0
    """Entries of an answer, more than the model has; 0: twice as many."""

    seed: int = 0
    """Seed of the subspace."""

    def __post_init__(self) -> None:
        check_ranges(self, dimensions=(0, _MAX_DIM), seed=SEEDS)


def apply(stolen: Stolen, settings: DimensionExpansionSettings, material: Material) -> Facts:
    """Multiply every answer by a matrix with more rows, whose columns are orthonormal."""
    before = stolen.output_dim
    dimensions = settings.dimensions or min(2 * before, _MAX_DIM)
    if dimensions <= before:
        raise UsageError(
            f"{dimensions} dimensions are not more than the model's {before}",
            f"choose dimensions above {before}",
        )
    texts = material.some_texts(1, settings.seed)  # any: the subspace depends on dimensions alone
    stolen.draw_change(expansion(dimensions), texts, settings.seed)
    return {"output_dim": stolen.output_dim, "output_dim_before": before}


RECIPE = Recipe(
    source="ours",
    deviations="none: nobody described it before that we know of. The added dimensions are linear "
    "in the old ones; entries that depend on nothing would be noise.",
    cost="one matrix product per answer, and longer answers; no training",
    keeps="all of it: every length and every cosine",
    settings=DimensionExpansionSettings,
    apply=apply,
    trials=("", "dimensions=2000"),
)
