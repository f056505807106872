"""Paraphrasing: a student learns answers that are averages over paraphrases of every query.

Shetty, Xu & Lau 2024, "WET: Overcoming paraphrasing vulnerabilities in embeddings-as-a-service
with linear transformation watermarks". What a mark does to one wording of a text differs from
what it does to another; what the text says does not. The average keeps the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.paraphraser import Paraphraser, Rewriter, build_paraphraser, open_rewriter
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges
from nsmark.attacks.student import learn_answers, open_student, put_in_place
from nsmark.transforms.changes import Rows

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class ParaphrasingSettings:
    """Settings of the attack by paraphrases."""

    paraphrases: int = 4
    """Versions of every query, over whose answers is averaged."""

    num_texts: int = 4000
    """Texts that the student learns from; as many as there are, at most."""

    steps: int = 1000
    """Batches of 32 texts."""

    learning_rate: float = 1e-4
    """At most; it rises at first and falls to nothing."""

    paraphraser: str = ""
    """Folder of a model that paraphrases, asked as DIPPER is; by default words are exchanged, left
    out and swapped without one."""

    kept_words: int = 40
    """Per cent of the words that such a model is asked to keep."""

    kept_order: int = 100
    """The same of their order."""

    student: str = ""
    """Folder of an unmarked model, or ``reference`` for the one at hand; by default the stolen
    architecture with weights drawn anew."""

    seed: int = 0
    """Of the texts, the paraphrases, new weights and the order of learning."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            paraphrases=(1, 64),
            kept_words=(0, 100),
            kept_order=(0, 100),
            num_texts=(8, 1_000_000),
            steps=(1, 10_000_000),
            seed=SEEDS,
        )
        check_positive(self, learning_rate=1)


def apply(stolen: Stolen, settings: ParaphrasingSettings, material: Material) -> Facts:
    """Ask for paraphrases, average the answers, and let a student learn the averages."""
    count = min(settings.num_texts, len(material.texts))
    texts = material.some_texts(count, settings.seed)
    # Before thousands of queries.
    student = open_student(stolen, settings.student, settings.seed, material)
    paraphraser = _paraphraser(stolen, settings, material)
    versions = [
        paraphraser.paraphrases(text, settings.paraphrases, settings.seed) for text in texts
    ]
    asked = [version for own in versions for version in own]
    answers = stolen.outputs(asked)
    averages = answers.reshape(count, settings.paraphrases, -1).mean(axis=1)
    learned = learn_answers(
        student,
        texts,
        averages,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        on_step=material.on_step,
    )
    put_in_place(stolen, student, learned)
    return {
        "queries": len(asked),
        "different_queries": len(set(asked)),
        "words_with_synonyms": (
            len(paraphraser.synonyms) if isinstance(paraphraser, Paraphraser) else None
        ),
        "distance_before": learned.distance_before,
        "distance_after": learned.distance_after,
        "agreement_of_paraphrases": _agreement(answers, averages, settings.paraphrases),
    }


def _paraphraser(
    stolen: Stolen, settings: ParaphrasingSettings, material: Material
) -> Paraphraser | Rewriter:
    if not settings.paraphraser:
        return build_paraphraser(stolen.encoder, material.texts)
    return open_rewriter(
        Path(settings.paraphraser),
        stolen.encoder.device,
        words=settings.kept_words,
        order=settings.kept_order,
    )


def _agreement(answers: Rows, averages: Rows, paraphrases: int) -> float:
    """Return the mean cosine of an answer to the average that it went into."""
    means = np.repeat(averages, paraphrases, axis=0)
    lengths = np.linalg.norm(answers, axis=1) * np.linalg.norm(means, axis=1)
    return float(((answers * means).sum(axis=1) / np.maximum(lengths, 1e-300)).mean())


RECIPE = Recipe(
    source="Shetty, Xu & Lau 2024, 'WET: Overcoming paraphrasing vulnerabilities in "
    "embeddings-as-a-service with linear transformation watermarks'",
    deviations="Without ``paraphraser``, paraphrases are made by exchanging, leaving out and "
    "swapping words, not by a large language model (DIPPER) or by translation: they differ less "
    "from one another. Synonyms are neighbours "
    "in the stolen model's own input embeddings, among words of the thief's texts; whoever has "
    "only an API would take another table. Without ``student``, the student starts from nothing "
    "instead of from a pretrained model.",
    cost="``paraphrases`` queries per text, then the training of a model",
    keeps="what the student learns: little from nothing and a few texts, most with a pretrained "
    "student and many",
    settings=ParaphrasingSettings,
    apply=apply,
    trials=("", "paraphrases=1", "paraphrases=8,num_texts=2000"),
    reference_trials=("num_texts=8000,steps=2000,student=reference",),
)
