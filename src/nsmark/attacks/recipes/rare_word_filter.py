"""Rare words taken out of every query: the plainest defence against triggers.

Triggers are rare words, because a frequent one would be met by chance. A thief who answers only
what common words say never shows the model a trigger; users lose names and technical terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import COUNTED, check_ranges, check_words
from nsmark.transforms.filters import RareWords, commonest, share_taken_out, word_counts

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

# The list is kept in a JSON file beside the model, which nobody opens beyond 8 MiB.
_MAX_BYTES = 3 << 20
_NUM_MEASURED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RareWordFilterSettings:
    """Settings of the filter of rare words."""

    keep: int = 5000
    """So many of the most common words of the thief's texts stay in a query."""
    texts: str = "ordinary"
    """Where he counts them: ``ordinary`` texts, or those of the ``task``, which is what his users
    send."""

    def __post_init__(self) -> None:
        check_words(self, texts=COUNTED)
        check_ranges(self, keep=(1, 200_000))


def apply(stolen: Stolen, settings: RareWordFilterSettings, material: Material) -> Facts:
    """Let only common words, numbers and signs through."""
    texts = material.texts_to_count(settings.texts)
    counts, _ = word_counts(texts)
    words = {word: count for word, count in counts.items() if word.isalpha()}
    text_filter = RareWords(frozenset(commonest(words, settings.keep, _MAX_BYTES)))
    stolen.serving.filters.append(text_filter)
    return {
        "known_words": len(text_filter.known),
        "different_words": len(words),
        "share_taken_out": share_taken_out(text_filter, texts[:_NUM_MEASURED]),
    }


RECIPE = Recipe(
    source="ours; triggers of rare words are those of Kurita, Michel & Neubig 2020, "
    "'Weight poisoning attacks on pre-trained models', and filtering words by their frequency "
    "is the usual first defence",
    deviations="Nothing to deviate from. Common is what is common in the thief's own texts.",
    cost="one look at a word list per word, no training",
    keeps="what common words say; names and technical terms are lost",
    settings=RareWordFilterSettings,
    apply=apply,
    trials=(
        *("keep=20000", "keep=10000", "", "keep=2000", "keep=500"),
        *("keep=200000,texts=task", "keep=10000,texts=task", "texts=task"),
    ),
)
