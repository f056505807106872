"""Half precision: answers rounded to bfloat16, as servers do that compute in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.transforms.changes import Bfloat16

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfPrecisionSettings:
    """There is nothing to choose."""


def apply(stolen: Stolen, settings: HalfPrecisionSettings, material: Material) -> Facts:
    """Round every number of every answer to bfloat16."""
    stolen.add_change(Bfloat16())
    return {"output_dim": stolen.output_dim, "relative_rounding": 2.0**-8}


RECIPE = Recipe(
    source="ours as an attack; usual practice of servers",
    deviations="Only answers are rounded. A server that computes in bfloat16 rounds at "
    "every layer.",
    cost="nothing; it saves memory and time",
    keeps="nearly all of it: every number changes by at most a 256th of itself",
    settings=HalfPrecisionSettings,
    apply=apply,
)
