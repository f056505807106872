"""Rounding: answers are sent on a few levels, such as the 255 of int8, as APIs do to save bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_words
from nsmark.errors import ConfigError
from nsmark.transforms.changes import Rounded
from nsmark.transforms.outputs import rounded, rounded_per_dimension

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

WAYS = {"whole": rounded, "per-dimension": rounded_per_dimension}
_EXAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingSettings:
    """Settings of the rounding."""

    levels: int = 255
    """Different values of an entry: zero and as many above as below, so an odd number. 255 is
    int8, 15 four bits, 3 the least."""

    how: str = "whole"
    """Levels between the extremes of all entries; ``per-dimension``: of every dimension."""

    def __post_init__(self) -> None:
        check_words(self, how=WAYS)
        if not (3 <= self.levels <= 65535 and self.levels % 2):
            raise ConfigError("levels", self.levels, "must be odd and lie between 3 and 65535")


def apply(stolen: Stolen, settings: RoundingSettings, material: Material) -> Facts:
    """Find the extremes on ordinary texts, and round every answer to levels between them."""
    texts = material.some_texts(_EXAMPLES, 0)
    change = stolen.draw_change(WAYS[settings.how](settings.levels), texts, 0)
    assert isinstance(change, Rounded)  # noqa: S101 - both ways are
    return {
        "output_dim": stolen.output_dim,
        "largest_step": float(np.max(change.step)),
        "smallest_step": float(np.min(change.step)),
    }


RECIPE = Recipe(
    source="ours as an attack; Shakir, Aarsen, Lee: Binary and Scalar Embedding Quantization, "
    "2024, for int8 answers",
    deviations="Levels lie symmetrically around zero; theirs lie between the least and the largest "
    "value of every dimension. Answers are sent as numbers, not as bytes.",
    cost="answers to some hundred ordinary texts, then one rounding per number",
    keeps="nearly all of it with 255 levels; less the fewer there are",
    settings=RoundingSettings,
    apply=apply,
    trials=("", "how=per-dimension", "levels=15", "levels=3"),
)
