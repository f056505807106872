"""Nearly singular map: invertible on paper, while some directions shrink towards the rounding.

Aimed at whoever counts ranks or scales rows: what the evidence needs is still in the answers, but
thousands of times smaller than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.transforms.changes import Linear
from nsmark.transforms.outputs import near_singular_map

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

# Answers are sent as float32, with seven digits: beyond this the weakest directions are rounding.
_MAX_CONDITION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSingularSettings:
    """Settings of the nearly singular map."""

    condition: float = 1e4
    """The strongest direction's factor divided by the weakest one's; the others lie between, each
    the same share of the one before."""

    seed: int = 0
    """Seed of the two rotations."""

    def __post_init__(self) -> None:
        check_ranges(self, condition=(1, _MAX_CONDITION), seed=SEEDS)


def apply(stolen: Stolen, settings: NearSingularSettings, material: Material) -> Facts:
    """Multiply every answer by a map that shrinks some directions."""
    texts = material.some_texts(1, settings.seed)  # any: the map depends on dimensions alone
    change = stolen.draw_change(near_singular_map(settings.condition), texts, settings.seed)
    assert isinstance(change, Linear)  # noqa: S101 - it is drawn as one
    return {
        "output_dim": stolen.output_dim,
        "condition_number": float(np.linalg.cond(change.matrix)),
    }


RECIPE = Recipe(
    source="ours; LL-LFEA (NSmark paper, §3.1) with the worst matrix that can still be undone",
    deviations="The paper's Q is drawn from U[0, 1] and as well conditioned as chance makes it; "
    "here the condition number is chosen.",
    cost="one matrix product per answer, no training",
    keeps="what can be told from the strong directions; the rest only for whoever undoes the map, "
    "as far as the rounding of answers lets him",
    settings=NearSingularSettings,
    apply=apply,
    trials=("", "condition=100.0", "condition=100000.0"),
)
