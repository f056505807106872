"""Whitening: the outputs' mean is taken off and all directions get the same variance.

Published as an improvement of sentence embeddings, so a thief may do it in good conscience. It is
an affine map that depends on the model, followed here by a rotation that hides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.transforms.changes import Linear
from nsmark.transforms.outputs import damped_whitening

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class WhiteningSettings:
    """Settings of whitening."""

    num_texts: int = 2000
    """Texts that mean and variances are estimated from; with fewer than the model has dimensions,
    directions are lost."""

    ridge: float = 1e-6
    """Added to every direction's variance, as a share of the mean variance: directions in which
    hardly anything varies are not blown up."""

    seed: int = 0
    """Seed of the rotation and of the choice of texts."""

    def __post_init__(self) -> None:
        check_ranges(self, num_texts=(8, 100_000), ridge=(0, 1), seed=SEEDS)


def apply(stolen: Stolen, settings: WhiteningSettings, material: Material) -> Facts:
    """Estimate mean and variances on ordinary texts, and whiten every answer by them."""
    texts = material.some_texts(settings.num_texts, settings.seed)
    change = stolen.draw_change(damped_whitening(settings.ridge), texts, settings.seed)
    assert isinstance(change, Linear)  # noqa: S101 - whitening is one
    factors = np.linalg.svd(change.matrix, compute_uv=False)
    kept = factors[factors > 1e-12 * factors[0]]
    return {
        "output_dim": stolen.output_dim,
        "directions": len(kept),
        "condition_number": float(kept[0] / kept[-1]),
    }


RECIPE = Recipe(
    source="Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster "
    "Retrieval, 2021; as an attack on a mark, ours",
    deviations="A random rotation follows, and a small ridge is added to the variances, without "
    "which rounding errors would be sent as directions.",
    cost="answers to some thousand ordinary texts, then one matrix product per answer",
    keeps="similarities between texts, by the paper better than before; all of it for a task that "
    "is trained on the answers",
    settings=WhiteningSettings,
    apply=apply,
    trials=("", "ridge=0.01", "num_texts=500"),
)
