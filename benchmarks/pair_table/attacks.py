"""Part ``attacks``: what thieves do to the marked model, and to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nsmark.embedding.config import Mark
from nsmark.errors import EmbeddingError
from nsmark.models.encoder import Encoder
from nsmark.transforms.weights import add_noise, prune, prune_feed_forward, quantise
from pair_table.changes import CHANGES, PLAIN
from pair_table.pieces import Finish, Piece
from pair_table.reading import Table, read_changes
from pair_table.run import MARKS, OTHERS, OWNER, Run, copied, questions_of
from pair_table.targets import SECOND_OWNER
from pair_table.tuning import tune

MARKED = "marked"
TUNED = "fine-tuned on {}"
OVERWRITING: dict[str, tuple[str, tuple[Mark, ...]]] = {
    OTHERS[0]: ("overwritten without a pair code", ("paper", "derived")),
    OTHERS[1]: ("overwritten with a pair code", MARKS),
}
"""What each of the other owners makes of the marked model, and his marks."""
CLASSIFIERS = {"sst2": 2, "agnews": 4, "sst5": 5}
LOGITS, LOG_PROBABILITIES = "logits", "log-probabilities"


@dataclass(frozen=True)
class Base:
    """Answers of one suspect to the pair texts of one key."""

    name: str
    outputs: np.ndarray
    table: Table
    changes: tuple[str, ...] = tuple(CHANGES)


def attack_pieces(run: Run) -> list[Piece]:
    """Return the suspects, cheap ones first: each is asked, and read behind every change."""
    makers: dict[str, Callable[[], Iterator[Base]]] = {MARKED: lambda: one(run, MARKED)}
    for name, change in weight_changes().items():
        makers[name] = partial(one, run, name, change)
    for task in run.material.tasks:
        makers[TUNED.format(task)] = partial(fine_tuned, run, task)
    for owner, (name, _) in OVERWRITING.items():
        makers[name] = partial(overwritten, run, owner)
    return [
        Piece(name, partial(start, run, make, 1000 * number))
        for number, (name, make) in enumerate(makers.items())
    ]


def start(run: Run, make: Callable[[], Iterator[Base]], seed: int) -> Finish:
    """Ask some suspects and have what they say read."""
    try:
        found = list(make())
    except EmbeddingError as error:  # a thief who failed to train
        return partial(dict, rows=[], note=str(error))
    waiting = [
        (
            base.name,
            run.readers.submit(
                read_changes, base.outputs, base.table, base.changes, seed + 100 * place
            ),
        )
        for place, base in enumerate(found)
    ]

    def finish() -> dict[str, Any]:
        rows = [{"base": name, **row} for name, job in waiting for row in job.result()]
        return {"rows": rows}

    return finish


def gather_attacks(run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """Put the suspects' readings together."""
    failed = [f"{name}: {piece['note']}" for name, piece in found.items() if "note" in piece]
    return {
        "model_sha256": run.key.model_digest,
        "rows": [row for piece in found.values() for row in piece["rows"]],
        "notes": [*run.material.notes, *failed],
    }


def asked(run: Run, name: str, model: Encoder) -> Base:
    """Ask a suspect the owner's pair texts."""
    return Base(name, model.encode(list(run.questions.texts)), run.table)


def one(run: Run, name: str, *changes: Callable[[Encoder], None]) -> Iterator[Base]:
    """Yield the marked model, changed."""
    yield asked(run, name, copied(run.marked, *changes))


def fine_tuned(run: Run, task: str) -> Iterator[Base]:
    """Yield the model tuned on a task; some also as a classifier, one also pruned."""
    model, name = copied(run.marked), TUNED.format(task)
    head = tune(model, run.material.tasks[task])
    tuned = asked(run, name, model.eval())
    yield tuned
    if task in CLASSIFIERS:
        yield from classifier(task, head.logits(tuned.outputs), run.table)
    if task == next(iter(run.material.tasks)):
        prune(0.3)(model)
        yield asked(run, f"{name}, pruned 30%", model)


def weight_changes() -> dict[str, Callable[[Encoder], None]]:
    """Return changes of weights that need no training."""
    changes = {
        f"pruned {share:.0%}": prune(share) for share in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    }
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


def overwritten(run: Run, owner: str) -> Iterator[Base]:
    """Yield the model after another marked it, read with the first and with his own key."""
    name, marks = OVERWRITING[owner]
    run.mark(run.folder_of(OWNER) / "model", owner, run.quick_config(*marks))
    model = run.marked_by(owner)
    yield asked(run, name, model)
    if "pairs" in marks:
        theirs = questions_of(run.key_of(owner))
        outputs = model.encode(list(theirs.texts))
        yield Base(f"{name}{SECOND_OWNER}", outputs, Table.of(theirs))
