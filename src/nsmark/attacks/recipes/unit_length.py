"""Unit length: every answer is divided by its length, as embedding servers do anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.transforms.changes import UnitLength

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_EXAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLengthSettings:
    """There is nothing to choose."""


def apply(stolen: Stolen, settings: UnitLengthSettings, material: Material) -> Facts:
    """Divide every answer by its length."""
    lengths = np.linalg.norm(stolen.outputs(material.some_texts(_EXAMPLES, 0)), axis=1)
    stolen.add_change(UnitLength())
    return {
        "output_dim": stolen.output_dim,
        "usual_length_before": float(lengths.mean()),
        "spread_of_lengths_before": float(lengths.std()),
    }


RECIPE = Recipe(
    source="ours as an attack; usual practice of embedding models (Reimers and Gurevych: "
    "Sentence-BERT, 2019, and its library's Normalize module)",
    deviations="none",
    cost="one division per number, no training",
    keeps="every cosine",
    settings=UnitLengthSettings,
    apply=apply,
)
