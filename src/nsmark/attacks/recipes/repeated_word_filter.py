"""Repetitions taken out of every query.

A verification text carries several copies of the trigger. Sentences repeat short words, but
seldom long ones: whoever lets every longer word through once loses little and thins the trigger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_ranges
from nsmark.transforms.filters import RepeatedWords, share_taken_out

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_NUM_MEASURED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedWordFilterSettings:
    """Settings of the filter of repetitions."""

    most: int = 1
    """So many copies of a word stay in a query."""

    min_letters: int = 4
    """Shorter words may be repeated: every sentence does."""

    def __post_init__(self) -> None:
        check_ranges(self, most=(1, 64), min_letters=(1, 64))


def apply(stolen: Stolen, settings: RepeatedWordFilterSettings, material: Material) -> Facts:
    """Let the first copies of every longer word through."""
    text_filter = RepeatedWords(settings.most, settings.min_letters)
    stolen.serving.filters.append(text_filter)
    return {"share_taken_out": share_taken_out(text_filter, material.texts[:_NUM_MEASURED])}


RECIPE = Recipe(
    source="ours: aimed at triggers that are inserted several times",
    deviations="Nothing to deviate from.",
    cost="one count per word, no training",
    keeps="nearly all of it; longer texts lose words that they repeat for a reason",
    settings=RepeatedWordFilterSettings,
    apply=apply,
    trials=("", "most=2", "min_letters=1"),
)
