"""Affine map: LL-LFEA with an offset, which a downstream layer takes off by its bias.

The offset adds the constant vector to the space of the outputs' rows, so that a null space that
was computed without it no longer fits. Comparisons of centred outputs see nothing of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.alterations.changes import Linear
from nsmark.attacks.recipe import Facts, Recipe
from nsmark.attacks.recipes.ll_lfea import check_invertible, output_transform
from nsmark.errors import ConfigError

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

KINDS = ("uniform", "conditioned")
_EXAMPLES = 200
# A float32 sum keeps seven digits: a larger offset would leave little of the answer.
_MAX_OFFSET = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineConfig:
    """Settings of the affine map."""

    kind: str = "uniform"
    """The matrix: entries from U[0, 1], as in LL-LFEA; ``conditioned``: rotation times scales in
    [½, 2]."""

    offset: float = 1.0
    """Length of the offset, as a share of the mapped answers' usual length."""

    seed: int = 0
    """Seed of matrix and offset."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError("kind", self.kind, f"must be one of {', '.join(KINDS)}")
        if not (math.isfinite(self.offset) and 0 <= self.offset <= _MAX_OFFSET):
            raise ConfigError("offset", self.offset, f"must lie between 0 and {_MAX_OFFSET:g}")
        if self.seed < 0:
            raise ConfigError("seed", self.seed, "must not be negative")


def apply(stolen: Stolen, config: AffineConfig, material: Material) -> Facts:
    """Multiply every answer by a matrix and add an offset."""
    dim = stolen.output_dim
    matrix = check_invertible(output_transform(config.kind, dim, config.seed))
    mapped = stolen.outputs(material.some_texts(_EXAMPLES, config.seed)) @ matrix.T
    usual = float(np.sqrt(np.mean(np.sum(mapped**2, axis=1))))
    # Not the stream that the matrix was drawn from: its first numbers would come again.
    direction = np.random.default_rng([config.seed, 1]).standard_normal(dim)
    offset = config.offset * usual * direction / np.linalg.norm(direction)
    stolen.add_change(Linear(matrix, offset))
    return {
        "output_dim": dim,
        "condition_number": float(np.linalg.cond(matrix)),
        "offset_length": float(np.linalg.norm(offset)),
    }


RECIPE = Recipe(
    name="affine",
    summary="linear map and an offset",
    kind="outputs",
    source="ours; the matrix as in LL-LFEA (NSmark paper, §3.1)",
    deviations="none from LL-LFEA but the offset; no downstream head is compensated",
    cost="one matrix product and one sum per answer, no training",
    keeps="all of it for whoever trains on the answers or knows the map; "
    "cosines between answers do not stay",
    settings=AffineConfig,
    apply=apply,
    trials=("", "kind=conditioned", "kind=conditioned,offset=10.0"),
)
