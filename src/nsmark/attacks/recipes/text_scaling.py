"""Text scaling: every answer is multiplied by its own random number.

Whoever compares answers by their direction notices nothing of positive numbers. Signs turn half
of the answers round, so that only absolute cosines stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.alterations.changes import ScaleAndSign
from nsmark.attacks.recipe import Facts, Recipe
from nsmark.errors import ConfigError

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScalingConfig:
    """Settings of text scaling."""

    flips: int = 1
    """1: half of the answers get the other sign, too; 0: all numbers are positive."""

    seed: int = 0
    """Seed of the numbers."""

    def __post_init__(self) -> None:
        if self.flips not in (0, 1):
            raise ConfigError("flips", self.flips, "must be 0 or 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must lie between 0 and 2⁶³ − 1")


def apply(stolen: Stolen, config: TextScalingConfig, material: Material) -> Facts:
    """Multiply every answer by a number that is drawn when it is sent."""
    stolen.add_change(ScaleAndSign(config.seed, flips=bool(config.flips)))
    return {"output_dim": stolen.output_dim}


RECIPE = Recipe(
    name="text-scaling",
    summary="every answer times its own number, of either sign",
    kind="outputs",
    source="ours",
    deviations="none: nobody described it before that we know of. Numbers are uniform between "
    "0.2 and 5, and new for every answer, also to a text that was asked before.",
    cost="one product per number, no training",
    keeps="with flips=0 every cosine; with flips=1 absolute cosines only, which search and most "
    "tasks cannot use",
    settings=TextScalingConfig,
    apply=apply,
    trials=("", "flips=0"),
)
