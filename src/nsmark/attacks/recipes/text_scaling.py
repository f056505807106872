"""Text scaling: every answer is multiplied by its own random number.

Whoever compares answers by their direction notices nothing of positive numbers. Signs turn half
of the answers round, so that only absolute cosines stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.transforms.changes import ScaleAndSign

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScalingSettings:
    """Settings of text scaling."""

    flips: int = 1
    """1: half of the answers get the other sign, too; 0: all numbers are positive."""

    seed: int = 0
    """Seed of the numbers."""

    def __post_init__(self) -> None:
        check_ranges(self, flips=(0, 1), seed=SEEDS)


def apply(stolen: Stolen, settings: TextScalingSettings, material: Material) -> Facts:
    """Multiply every answer by a number that is drawn when it is sent."""
    stolen.add_change(ScaleAndSign(settings.seed, flips=bool(settings.flips)))
    return {"output_dim": stolen.output_dim}


RECIPE = Recipe(
    source="ours",
    deviations="none: nobody described it before that we know of. Numbers are uniform between "
    "0.2 and 5, and new for every answer, also to a text that was asked before.",
    cost="one product per number, no training",
    keeps="with flips=0 every cosine; with flips=1 absolute cosines only, which search and most "
    "tasks cannot use",
    settings=TextScalingSettings,
    apply=apply,
    trials=("", "flips=0"),
)
