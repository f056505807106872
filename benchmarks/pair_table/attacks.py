"""Part ``attacks``: what thieves do to the marked model, and to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsmark.alterations.weights import add_noise, prune, prune_feed_forward, quantise
from nsmark.errors import EmbeddingError
from nsmark.models.encoder import Encoder
from pair_table.changes import CHANGES, PLAIN
from pair_table.reading import Table, read_changes
from pair_table.run import MARKS, OTHERS, OWNER, Run, copied, questions_of, say
from pair_table.tuning import tune

MARKED = "marked"
TUNED = "fine-tuned on {}"
CLASSIFIERS = {"sst2": 2, "agnews": 4, "sst5": 5}
LOGITS, LOG_PROBABILITIES = "logits", "log-probabilities"


@dataclass(frozen=True)
class Base:
    """Answers of one suspect to the pair texts of one key."""

    name: str
    outputs: np.ndarray
    table: Table
    changes: tuple[str, ...] = tuple(CHANGES)


def measure_attacks(run: Run) -> dict[str, Any]:
    """Read the code from every suspect behind every change."""
    notes = list(run.material.notes)
    waiting = []
    for number, base in enumerate(bases(run, notes)):
        words = (base.outputs, base.table, base.changes, 1000 * number)
        waiting.append((base.name, run.readers.submit(read_changes, *words)))
        say(f"attacks: asked {base.name}")
    rows = [{"base": name, **row} for name, job in waiting for row in job.result()]
    return {"model_sha256": run.key.model_digest, "rows": rows, "notes": notes}


def bases(run: Run, notes: list[str]) -> Iterator[Base]:
    """Yield every suspect, cheap ones first; what could not be made is noted."""
    texts = list(run.questions.texts)

    def base(name: str, model: Encoder) -> Base:
        return Base(name, model.encode(texts), run.table)

    yield base(MARKED, run.marked)
    for name, change in weight_changes().items():
        yield base(name, copied(run.marked, change))
    for number, (name, task) in enumerate(run.material.tasks.items()):
        model = copied(run.marked)
        head = tune(model, task)
        tuned = base(TUNED.format(name), model.eval())
        yield tuned
        if name in CLASSIFIERS:
            yield from classifier(name, head.logits(tuned.outputs), run.table)
        if number == 0:
            prune(0.3)(model)
            yield base(f"{TUNED.format(name)}, pruned 30%", model)
    yield from overwritten(run, notes)


def weight_changes() -> dict[str, Callable[[Encoder], None]]:
    """Return changes of weights that need no training."""
    changes = {f"pruned {share:.0%}": prune(share) for share in (0.2, 0.3, 0.4, 0.5, 0.6)}
    for share in (0.5, 0.8, 0.9):
        changes[f"feed-forward pruned {share:.0%}"] = prune_feed_forward(share)
    changes["8-bit weights"] = quantise(8)
    for share in (0.05, 0.1):
        changes[f"weights + {share:.0%} noise"] = add_noise(share, seed=7)
    return changes


def classifier(name: str, logits: np.ndarray, table: Table) -> Iterator[Base]:
    """Yield what a classifier's API shows: logits, or logarithms of probabilities."""
    classes = logits.shape[1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    for kind, outputs in ((LOGITS, logits), (LOG_PROBABILITIES, logarithms)):
        yield Base(f"classifier {name}, {classes} classes, {kind}", outputs, table, (PLAIN,))


def overwritten(run: Run, notes: list[str]) -> Iterator[Base]:
    """Yield the model after others marked it, read with the first and the last owner's key."""
    for owner, marks in zip(OTHERS, (("paper", "derived"), MARKS), strict=True):
        what = "with a pair code" if "pairs" in marks else "without a pair code"
        try:
            run.mark(run.folder_of(OWNER) / "model", owner, run.quick_config(*marks))
        except EmbeddingError as error:
            notes.append(f"overwriting {what} failed: {error}")
            continue
        model = run.marked_by(owner)
        name = f"overwritten {what}"
        yield Base(name, model.encode(list(run.questions.texts)), run.table)
        if "pairs" in marks:
            theirs = questions_of(run.key_of(owner))
            outputs = model.encode(list(theirs.texts))
            yield Base(f"{name}, the second owner's key", outputs, Table.of(theirs))
