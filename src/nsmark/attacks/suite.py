"""All attacks on one marked model: resumable, several at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nsmark.attacks.material import Material
from nsmark.attacks.trial import Row, Workshop
from nsmark.errors import KeyFileError
from nsmark.files import write_json
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.folder import model_digest

TrialCallback = Callable[[int, int, str], None]
"""Told how many trials are done, of how many, and which was the last."""

_ROWS = "rows"


def run_suite(
    key: WatermarkKey,
    model: Path,
    out: Path,
    material: Material,
    plan: Sequence[str],
    *,
    jobs: int = 1,
    on_trial: TrialCallback | None = None,
) -> list[Row]:
    """Try every attack of a plan and return a row for each, in the plan's order.

    Every row is kept in ``out`` as soon as it is there: a suite that was interrupted goes on
    where it stopped. Rows of attacks that could not be run are tried again.

    Args:
        key: The key of the marked model.
        model: The marked model.
        out: A folder for the rows; made if it is not there.
        material: What the thief has at hand.
        plan: Attacks as they are written.
        jobs: Processes at a time.
        on_trial: Told after every trial.

    Raises:
        KeyFileError: The key names another model.
    """
    if model_digest(model) != key.model_digest:
        raise KeyFileError(
            f"{model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
    rows = out / _ROWS
    rows.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(key, model, replace(material, on_step=None))
    found: dict[str, Row] = {}
    for expression in plan:
        kept = _kept(rows, workshop.digest(expression))
        if kept is not None:
            found[expression] = kept
    missing = [expression for expression in plan if expression not in found]
    if missing:
        workshop = replace(workshop, before=workshop.asked(model))
    for expression, row in _tried(workshop, missing, jobs):
        found[expression] = row
        write_json(rows / f"{row['digest']}.json", row)
        if on_trial is not None:
            on_trial(len(found), len(plan), expression)
    return [found[expression] for expression in plan]


def _kept(rows: Path, digest: str) -> Row | None:
    """Return the row of a trial that was done before and could be run."""
    try:
        row = json.loads((rows / f"{digest}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not there, or cut off while it was written by something else than us
    is_whole = isinstance(row, dict) and row.get("digest") == digest and row.get("error") is None
    return row if is_whole else None


def _tried(workshop: Workshop, plan: Sequence[str], jobs: int) -> Iterator[tuple[str, Row]]:
    if jobs == 1 or len(plan) < 2:
        for expression in plan:
            yield expression, workshop.try_out(expression)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        min(jobs, len(plan)), get_context("spawn"), _start, (workshop, threads)
    ) as pool:
        waiting = {pool.submit(_try_out, expression): expression for expression in plan}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


_SHARED: dict[str, Any] = {}


def _start(workshop: Workshop, threads: int) -> None:
    """Prepare a process, which has some of the cores."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    _SHARED["limits"] = threadpool_limits(threads)
    _SHARED["workshop"] = workshop


def _try_out(expression: str) -> Row:
    row: Row = _SHARED["workshop"].try_out(expression)
    return row
