"""Affine map: LL-LFEA with an offset, which a downstream layer takes off by its bias.

The offset adds the constant vector to the space of the outputs' rows, so that a null space that
was computed without it no longer fits. Comparisons of centred outputs see nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.recipes.ll_lfea import check_invertible, output_transform
from nsmark.attacks.settings import SEEDS, check_ranges, check_words
from nsmark.transforms.changes import Linear

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

KINDS = ("uniform", "conditioned")
_EXAMPLES = 200
# A float32 sum keeps seven digits: a larger offset would leave little of the answer.
_MAX_OFFSET = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineSettings:
    """Settings of the affine map."""

    kind: str = "uniform"
    """The matrix: entries from U[0, 1], as in LL-LFEA; ``conditioned``: rotation times scales in
    [½, 2]."""

    offset: float = 1.0
    """Length of the offset, as a share of the mapped answers' usual length."""

    seed: int = 0
    """Seed of matrix and offset."""

    def __post_init__(self) -> None:
        check_words(self, kind=KINDS)
        check_ranges(self, offset=(0, _MAX_OFFSET), seed=SEEDS)


def apply(stolen: Stolen, settings: AffineSettings, material: Material) -> Facts:
    """Multiply every answer by a matrix and add an offset."""
    dim = stolen.output_dim
    matrix = check_invertible(output_transform(settings.kind, dim, settings.seed))
    mapped = stolen.outputs(material.some_texts(_EXAMPLES, settings.seed)) @ matrix.T
    usual = float(np.sqrt(np.mean(np.sum(mapped**2, axis=1))))
    # Not the stream that the matrix was drawn from: its first numbers would come again.
    direction = np.random.default_rng([settings.seed, 1]).standard_normal(dim)
    offset = settings.offset * usual * direction / np.linalg.norm(direction)
    stolen.add_change(Linear(matrix, offset))
    return {
        "output_dim": dim,
        "condition_number": float(np.linalg.cond(matrix)),
        "offset_length": float(np.linalg.norm(offset)),
    }


RECIPE = Recipe(
    source="ours; the matrix as in LL-LFEA (NSmark paper, §3.1)",
    deviations="none from LL-LFEA but the offset; no downstream head is compensated",
    cost="one matrix product and one sum per answer, no training",
    keeps="all of it for whoever trains on the answers or knows the map; "
    "cosines between answers do not stay",
    settings=AffineSettings,
    apply=apply,
    trials=("", "kind=conditioned", "kind=conditioned,offset=10.0"),
)
