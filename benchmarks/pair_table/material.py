"""Texts and tasks: the real ones where there is a data folder, else made from the built-in corpus.

A task that a data folder lacks is left out, with a note. Without any folder tasks are made up: to
try the benchmark out, not to learn something from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence_table.tasks import Task, read_task
from family_table.texts import cut, long_enough, unseen
from nsmark.corpus import training_texts
from nsmark.payload import read_texts

CLASSES = {"sst2": 2, "sst5": 5, "offenseval": 2, "lingspam": 2, "agnews": 4}
"""The five tasks and their numbers of labels."""

NUM_HELDOUT = 512


@dataclass(frozen=True)
class Material:
    """What models are marked, tuned and measured with."""

    paragraphs: list[str]
    """Uncut: for pretraining."""
    corpus: list[str]
    """Cut to 48 words: for marking and distilling."""
    heldout: list[str]
    """For fidelity."""
    tasks: dict[str, Task]
    notes: list[str]


def read_material(data: Path | None, task_rows: int) -> Material:
    """Read what is there.

    Args:
        data: Folder with ``wikitext-2`` and the tasks; None takes the built-in corpus.
        task_rows: At most so many training rows of a task.
    """
    if data is None:
        texts = list(training_texts())
        made_up = {name: make_task(name, texts, task_rows, n) for name, n in CLASSES.items()}
        note = "no data folder: built-in texts and made-up tasks, whose numbers say nothing"
        return Material(texts[:2000], texts[:4000], texts[-64:], made_up, [note])
    wikitext = data / "wikitext-2"
    paragraphs = long_enough(read_texts(wikitext / "train.txt.gz"))
    corpus = list(dict.fromkeys(cut(paragraphs)))
    valid = unseen(cut(long_enough(read_texts(wikitext / "valid.txt.gz"))), corpus)
    tasks, notes = {}, []
    for name in CLASSES:
        path = task_file(data / name)
        if path is None:
            notes.append(f"task {name} is not in the data folder and was left out")
        else:
            tasks[name] = read_task(name, path, task_rows)
    return Material(paragraphs, corpus, valid[:NUM_HELDOUT], tasks, notes)


def task_file(folder: Path) -> Path | None:
    """Return a task's training rows: whole sentences rather than phrases, where there are both."""
    paths = [folder / f"{name}.jsonl.gz" for name in ("train_sentences", "train")]
    return next((path for path in paths if path.exists()), None)


def make_task(name: str, texts: Sequence[str], rows: int, classes: int) -> Task:
    """Make a task up: labels by the number of words."""
    chosen = list(texts[:rows])
    return Task(name, chosen, [len(text.split()) % classes for text in chosen])
