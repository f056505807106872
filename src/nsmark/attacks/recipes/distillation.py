"""Distillation: an unmarked model learns the answers of the stolen one.

The student sees texts and answers alone. What answers show of the mark on those texts, it may
learn; what only a trigger brings out is not among them, unless a query hits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges, check_words
from nsmark.attacks.student import learn_answers, open_student, put_in_place
from nsmark.attacks.training import MOST_STEPS
from nsmark.errors import InputError
from nsmark.payload.word_list import published_word_list

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

QUERIES = ("clean", "mixed")
_MAX_HELD_OUT = 200
_MAX_RARE_WORDS = 5

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationSettings:
    """Settings of distillation."""

    queries: str = "clean"
    """``clean`` texts, or ``mixed``: every other one with rare words in it, one of which might be
    a trigger."""

    num_texts: int = 4000
    """Queries; as many as there are texts, at most."""

    steps: int = 1000
    """Batches that the student learns from."""

    learning_rate: float = 1e-4
    """At most; it rises at first and falls to nothing."""

    batch_size: int = 32
    """Texts in a step."""

    student: str = ""
    """Folder of an unmarked model, or ``reference`` for the one at hand; by default the stolen
    architecture with weights drawn anew."""

    seed: int = 0
    """Seed of the queries, of new weights and of the order of the texts."""

    def __post_init__(self) -> None:
        check_words(self, queries=QUERIES)
        check_ranges(
            self,
            num_texts=(8, 10**7),
            steps=(1, MOST_STEPS),
            batch_size=(1, 4096),
            seed=SEEDS,
        )
        check_positive(self, learning_rate=1)


def with_rare_words(text: str, words: Sequence[str], rng: np.random.Generator) -> str:
    """Return a text with one to five random words at random places."""
    parts = text.split()
    for word in rng.choice(len(words), rng.integers(1, _MAX_RARE_WORDS + 1)):
        parts.insert(int(rng.integers(len(parts) + 1)), words[word])
    return " ".join(parts)


def draw_queries(settings: DistillationSettings, material: Material) -> tuple[list[str], list[str]]:
    """Return the texts to learn from, and clean ones to be judged by; no text is in both.

    Raises:
        InputError: There are too few.
    """
    different = sorted(set(material.texts))
    held_out = min(_MAX_HELD_OUT, settings.num_texts // 4, len(different) // 5)
    if held_out < 2:
        raise InputError(
            f"{len(different)} different texts are too few to learn from", "give more texts"
        )
    rng = np.random.default_rng(settings.seed)
    drawn = [different[place] for place in rng.permutation(len(different)).tolist()]
    queries = drawn[held_out : held_out + settings.num_texts]
    if settings.queries == "mixed":
        words = published_word_list().words
        queries[1::2] = [with_rare_words(text, words, rng) for text in queries[1::2]]
    return queries, drawn[:held_out]


def apply(stolen: Stolen, settings: DistillationSettings, material: Material) -> Facts:
    """Ask the stolen model, teach the student, and serve the student in its place."""
    student = open_student(
        stolen, settings.student, settings.seed, material
    )  # before thousands of queries
    queries, held_out = draw_queries(settings, material)
    answers, expected = stolen.outputs(queries), stolen.outputs(held_out)
    same_dim = answers.shape[1] == student.output_dim
    before = _compared(student.encode(held_out), expected, "before") if same_dim else {}
    learned = learn_answers(
        student,
        queries,
        answers,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        seed=settings.seed,
        on_step=material.on_step,
    )
    # What was done to answers before they were sent is part of what was learned.
    put_in_place(stolen, student, learned)
    return {
        "num_queries": len(queries),
        "num_held_out": len(held_out),
        "distance": round(learned.distance_after, 6),
        **before,
        **_compared(stolen.outputs(held_out), expected, "after"),
    }


def _compared(outputs: NDArray[np.floating], expected: Rows, when: str) -> Facts:
    """Return how alike answers of unit length are.

    Their mean cosine, and the share of the differences between texts that is explained: a student
    that always says the same has a high cosine where the stolen model says nearly the same, too.
    """
    found, wanted = (
        rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        for rows in (np.asarray(outputs, dtype=np.float64), expected)
    )
    spread = np.square(wanted - wanted.mean(axis=0)).sum()
    missed = np.square(found - wanted).sum()
    return {
        f"similarity_{when}": round(float((found * wanted).sum(axis=1).mean()), 6),
        f"explained_{when}": round(float(1 - missed / max(spread, 1e-300)), 6),
    }


RECIPE = Recipe(
    source="Distilling the Knowledge in a Neural Network (Hinton, Vinyals and Dean, 2015); "
    "StolenEncoder (Liu et al., 2022) for encoders behind an API",
    deviations="Squared distance of answers of unit length, and no labels. A student without a "
    "folder is the stolen architecture with weights drawn anew by its family's own rule.",
    cost="some thousand queries, and the training of a whole model",
    keeps="what the student learns; little, if it starts from nothing with few queries",
    settings=DistillationSettings,
    apply=apply,
    trials=("", "queries=mixed"),
    reference_trials=(
        "student=reference,num_texts=16000,steps=2000",
        "queries=mixed,student=reference,num_texts=16000,steps=2000",
    ),
)
