"""Part ``limits``: where the pair code ends, measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evidence_table.tasks import distil
from nsmark.models.encoder import Encoder
from nsmark.transforms.weights import reinitialise
from pair_table.marking import cosines
from pair_table.pieces import Piece
from pair_table.queries import QUERY_CHANGES, altered
from pair_table.reading import Row, read
from pair_table.run import Run, copied
from pair_table.thieves import scan, undo
from pair_table.tuning import tune

RATES = (2e-5, 5e-5)
RETRAINING_TASK = "agnews"


def limit_pieces(run: Run) -> list[Piece]:
    """Return every limit."""
    first, second = run.scale.student_epochs
    makers: dict[str, Callable[[], Any]] = {
        "queries": partial(query_changes, run),
        "word search": partial(scan, run),
    }
    makers |= {f"undo {count}": partial(undo, run, count) for count in run.scale.undo_texts}
    makers |= {
        "student of the reference": lambda: student(run, "the reference", run.reference, first),
        "student from nothing": lambda: student(run, "random weights", random_model(run), second),
    }
    makers |= {f"retraining {rate:g}": partial(retraining, run, rate) for rate in RATES}
    return [Piece.plain(name, make) for name, make in makers.items()]


def gather_limits(run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """Put the limits together."""

    def named(start: str) -> list[Any]:
        return [result for name, result in found.items() if name.startswith(start)]

    return {
        "model_sha256": run.key.model_digest,
        "queries": found["queries"],
        "word_search": found["word search"],
        "undo": named("undo"),
        "students": named("student"),
        "retraining": [row for rows in named("retraining") for row in rows],
        "notes": run.material.notes,
    }


def query_changes(run: Run) -> list[Row]:
    """Read the code where questions are altered on their way."""
    texts = run.questions.texts
    rows = []
    for name in QUERY_CHANGES:
        outputs = run.marked.encode(altered(texts, name))
        rows.append({"queries": name, **read(outputs, run.table)})
    return rows


def random_model(run: Run) -> Encoder:
    """Return a model of the same shape that knows nothing."""
    return copied(run.reference, reinitialise(None, 201))


def student(run: Run, name: str, start: Encoder, epochs: int) -> Row:
    """Distil from the marked model's answers to clean texts."""
    texts = run.material.corpus[: run.scale.student_texts]
    model = copied(start, distil(run.marked, texts, epochs=epochs))
    answers = [each.encode(run.material.heldout) for each in (model, run.marked)]
    return {
        "start": name,
        "texts": len(texts),
        "epochs": epochs,
        "cosine_to_teacher": float(np.mean(cosines(*answers))),
        **asked(run, model),
    }


def retraining(run: Run, rate: float) -> list[Row]:
    """Train on a task for long, and read along the way."""
    tasks = run.material.tasks
    name = RETRAINING_TASK if RETRAINING_TASK in tasks else next(iter(tasks))
    model, rows = copied(run.marked), []
    tune(
        model,
        tasks[name],
        steps=run.scale.retraining[-1],
        rate=rate,
        watch=lambda step: rows.append(
            {"task": name, "rate_of_learning": rate, "step": step, **asked(run, model)}
        ),
        watched=run.scale.retraining,
    )
    return rows


def asked(run: Run, model: Encoder) -> Row:
    """Ask a model the pair texts, and read."""
    return read(model.encode(list(run.questions.texts)), run.table)
