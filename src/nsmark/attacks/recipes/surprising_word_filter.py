"""ONION: words without which a query is much more probable are taken out of it.

Qi, Chen, Li, Yao, Liu & Sun 2021, "ONION: A simple and effective defense against textual backdoor
attacks". A trigger does not belong where it was inserted, and a language model sees that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import COUNTED, check_positive, check_words
from nsmark.transforms.filters import SurprisingWords, commonest, share_taken_out, word_counts

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

# The counts are kept in a JSON file beside the model, which nobody opens beyond 8 MiB.
_MAX_WORD_BYTES = 1 << 20
_MAX_NEIGHBOUR_BYTES = 3 << 20
_MAX_COUNTS = 1_000_000
_NUM_MEASURED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SurprisingWordFilterSettings:
    """Settings of the filter of surprising words."""

    threshold: float = 10.0
    """A word is taken out if the query is more probable without it by more than so many nats."""
    texts: str = "ordinary"
    """Whose words are counted: of ``ordinary`` texts, or of the ``task``'s, which is what the
    thief's users send."""

    def __post_init__(self) -> None:
        check_words(self, texts=COUNTED)
        check_positive(self, threshold=100)


def apply(stolen: Stolen, settings: SurprisingWordFilterSettings, material: Material) -> Facts:
    """Count words and neighbours in the thief's texts, and filter by what they make probable."""
    texts = material.texts_to_count(settings.texts)
    words, neighbours = word_counts(texts)
    text_filter = SurprisingWords(
        commonest(words, _MAX_COUNTS, _MAX_WORD_BYTES),
        commonest(neighbours, _MAX_COUNTS, _MAX_NEIGHBOUR_BYTES),
        settings.threshold,
    )
    stolen.serving.filters.append(text_filter)
    return {
        "counted_words": len(text_filter.words),
        "counted_neighbours": len(text_filter.neighbours),
        "share_taken_out": share_taken_out(text_filter, texts[:_NUM_MEASURED]),
    }


RECIPE = Recipe(
    source="Qi, Chen, Li, Yao, Liu & Sun 2021, 'ONION: A simple and effective defense against "
    "textual backdoor attacks'",
    deviations="Probable by counts of words and of neighbours in the thief's texts, instead of "
    "by GPT-2: the filter is saved with the folder and needs no second model, but knows no "
    "grammar beyond two words, and no words that the texts do not have. A filter by a causal "
    "language model is left out. ONION compares perplexities, which are means over the words of "
    "a text; the threshold here is on the probability of the whole text, so that a word in a long "
    "text is judged as in a short one. Numbers and words with signs in them always stay.",
    cost="two looks at a table per word, no training",
    keeps="what the thief's texts know; words they do not know are lost",
    settings=SurprisingWordFilterSettings,
    apply=apply,
    trials=(
        *("", "threshold=6.0", "threshold=14.0"),
        *("threshold=14.0,texts=task", "texts=task"),
    ),
)
