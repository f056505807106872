"""What a thief has at hand: texts, and a task with labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nsmark.attacks.labelled import read_labelled
from nsmark.corpus import labelled_texts, training_texts
from nsmark.errors import InputError, UsageError
from nsmark.payload import read_texts

StepCallback = Callable[[int, int], None]
"""Told how many training steps are done, and of how many."""

REFERENCE = "reference"
"""Names the unmarked model that the thief has, in settings that take a folder."""

_MAX_WORDS = 48


@dataclass(frozen=True, slots=True)
class Task:
    """Texts with labels, divided into those to learn from and those to be judged by."""

    name: str
    train_texts: Sequence[str]
    train_labels: Sequence[int]
    test_texts: Sequence[str]
    test_labels: Sequence[int]

    @property
    def num_classes(self) -> int:
        """Different labels; they are numbered from 0."""
        return int(max(*self.train_labels, *self.test_labels)) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Given to every attack."""

    texts: Sequence[str]
    """Ordinary texts, without labels."""
    task: Task
    device: str = "auto"
    on_step: StepCallback | None = field(default=None, compare=False)
    reference: Path | None = None
    """The unmarked model, where it is public: the thief has it, too."""

    def folder(self, setting: str) -> Path:
        """Return the folder that a setting names.

        Raises:
            UsageError: It is the unmarked model's, and that is not at hand.
        """
        if setting != REFERENCE:
            return Path(setting)
        if self.reference is None:
            raise UsageError("there is no unmarked model at hand", "give one with --reference DIR")
        return self.reference

    def texts_to_count(self, setting: str) -> Sequence[str]:
        """Return the texts that a filter of queries is made from, as a setting names them.

        Of the task, those that are learned from: what the filter costs shows on the others.
        """
        return self.task.train_texts if setting == "task" else self.texts

    def some_texts(self, count: int, seed: int) -> list[str]:
        """Return so many texts, drawn without repetition while there are enough."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.texts))
        return [self.texts[place] for place in np.resize(order, count).tolist()]


def gather_material(
    texts: Path | None = None,
    task: Path | None = None,
    *,
    device: str = "auto",
    on_step: StepCallback | None = None,
    max_task_texts: int = 4000,
    reference: Path | None = None,
) -> Material:
    """Read texts and task, or take the built-in corpus and its topics.

    Args:
        texts: A file of texts.
        task: A file of texts with labels.
        device: Where models run.
        on_step: Told of training steps.
        max_task_texts: More labelled texts are left out.
        reference: The unmarked model, if it is public.
    """
    found = read_texts(texts) if texts is not None else training_texts()
    short = [" ".join(text.split()[:_MAX_WORDS]) for text in found if text.strip()]
    if len(short) < 8:
        raise InputError(f"{texts} holds fewer than 8 texts", "give more texts")
    if task is None:
        labelled = divided("topics of the built-in corpus", *labelled_texts(max_task_texts))
    else:
        labelled = divided(task.stem, *read_labelled(task), limit=max_task_texts)
    return Material(texts=short, task=labelled, device=device, on_step=on_step, reference=reference)


def divided(
    name: str, texts: Sequence[str], labels: Sequence[int | str], limit: int | None = None
) -> Task:
    """Divide labelled texts: four fifths to learn from, the rest to be judged by."""
    order = np.random.default_rng(0).permutation(len(texts))[:limit]
    cut = len(order) * 4 // 5
    numbers = {label: number for number, label in enumerate(sorted(set(labels), key=str))}
    if cut < 2 or len(numbers) < 2:
        raise InputError(
            f"the task {name!r} has {len(order)} texts of {len(numbers)} classes",
            "give at least a dozen texts of two classes",
        )
    parts = [
        ([texts[place] for place in rows], [numbers[labels[place]] for place in rows])
        for rows in (order[:cut], order[cut:])
    ]
    return Task(name, *parts[0], *parts[1])
