"""All attacks on one marked model: resumable, several at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nsmark.attacks.material import Material
from nsmark.attacks.plan import effort
from nsmark.attacks.trial import Row, Workshop
from nsmark.attacks.utility import Yield
from nsmark.errors import KeyFileError
from nsmark.files import write_json
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.folder import model_digest

TrialCallback = Callable[[int, int, str], None]
"""Told how many trials are done, of how many, and which was the last, or is the next."""

Part = tuple[Material, Sequence[str]]
"""What the thief has at hand, and the attacks that he tries with it."""

Task = tuple[str, str]
"""A part's name, and an attack."""

_ROWS = "rows"
_POOLS = 3
"""Processes may be killed, for want of memory: so often what is left is tried again."""


def run_suite(
    key: WatermarkKey,
    model: Path,
    out: Path,
    material: Material,
    plan: Sequence[str],
    *,
    jobs: int = 1,
    on_begin: TrialCallback | None = None,
    on_trial: TrialCallback | None = None,
) -> list[Row]:
    """Try every attack of a plan and return a row for each, in the plan's order.

    Arguments and errors are those of :func:`run_suites`, for one part.
    """
    parts = {"": (material, plan)}
    return run_suites(key, model, out, parts, jobs=jobs, on_begin=on_begin, on_trial=on_trial)[""]


def run_suites(
    key: WatermarkKey,
    model: Path,
    out: Path,
    parts: Mapping[str, Part],
    *,
    jobs: int = 1,
    on_begin: TrialCallback | None = None,
    on_trial: TrialCallback | None = None,
    is_innocent: bool = False,
) -> dict[str, list[Row]]:
    """Try every attack of several plans, such as one for each of several tasks.

    Every row is kept in ``out`` as soon as it is there: a suite that was interrupted goes on
    where it stopped. Rows of attacks that could not be run are tried again.

    Args:
        key: The key of the marked model.
        model: The marked model.
        out: A folder for the rows; made if it is not there.
        parts: By name, what the thief has and tries.
        jobs: Processes at a time, for all parts together.
        on_begin: Told before every trial, where they run one by one.
        on_trial: Told after every trial.
        is_innocent: Attack another model than the key's: to see that it is not accused.

    Raises:
        KeyFileError: The key names another model, or this one where an innocent is meant.
    """
    digest_of_model = model_digest(model)
    is_the_keys = digest_of_model == key.model_digest
    if is_innocent and is_the_keys:
        raise KeyFileError(f"{model} holds the marked model", "give a model without the mark")
    if not is_innocent and not is_the_keys:
        raise KeyFileError(
            f"{model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
    rows = out / _ROWS
    rows.mkdir(parents=True, exist_ok=True)
    shops = {
        name: Workshop(key, model, replace(material, on_step=None), digest_of_model)
        for name, (material, _) in parts.items()
    }
    digests = {
        (name, expression): shops[name].digest(expression)
        for name, (_, plan) in parts.items()
        for expression in plan
    }
    found: dict[Task, Row] = {}
    for task, digest in digests.items():
        kept = _kept(rows, digest)
        if kept is not None:
            found[task] = kept
    missing = [task for task in digests if task not in found]
    if missing:
        suspect = next(iter(shops.values())).opened(model)
        for name in dict.fromkeys(name for name, _ in missing):
            before = Yield.of_suspect(suspect, shops[name].material.task)
            shops[name] = replace(shops[name], before=before)
        del suspect  # the processes need its memory

    def begin(expression: str) -> None:
        if on_begin is not None:
            on_begin(len(found), len(digests), expression)

    for task, row in _tried(shops, missing, jobs, begin):
        found[task] = row
        write_json(rows / f"{row.digest}.json", row.to_mapping())
        if on_trial is not None:
            on_trial(len(found), len(digests), task[1])
    return {
        name: [found[name, expression] for expression in plan] for name, (_, plan) in parts.items()
    }


def _kept(rows: Path, digest: str) -> Row | None:
    """Return the row of a trial that was done before and could be run."""
    try:
        stored = json.loads((rows / f"{digest}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not there, or cut off while it was written by something else than us
    if not isinstance(stored, dict) or stored.get("digest") != digest:
        return None
    return Row.from_mapping(stored) if stored.get("error") is None else None


def _tried(
    shops: Mapping[str, Workshop],
    tasks: Sequence[Task],
    jobs: int,
    begin: Callable[[str], None],
) -> Iterator[tuple[Task, Row]]:
    if jobs == 1 or len(tasks) < 2:
        for part, expression in tasks:
            begin(expression)
            yield (part, expression), shops[part].try_out(expression)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    # What takes long comes first: nothing else is left to do while the last ones run.
    left = sorted(tasks, key=lambda task: -effort(task[1]))
    for _ in range(_POOLS):
        pool = ProcessPoolExecutor(
            min(jobs, len(left)), get_context("spawn"), _start, (dict(shops), threads)
        )
        try:
            waiting = {pool.submit(_try_out, *task): task for task in left}
            for done in as_completed(waiting):
                row = done.result()
                left.remove(waiting[done])
                yield waiting[done], row
        except BrokenProcessPool:
            continue
        finally:
            pool.shutdown(cancel_futures=True)
        return
    for part, expression in left:
        row = Row(
            attack=expression,
            digest=shops[part].digest(expression),
            error="a process was killed while it ran",
            hint="there may be too little memory: use fewer --jobs",
        )
        yield (part, expression), row


_SHARED: dict[str, Any] = {}


def _start(shops: dict[str, Workshop], threads: int) -> None:
    """Prepare a process, which has some of the cores."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    _SHARED["limits"] = threadpool_limits(threads)
    _SHARED["shops"] = shops


def _try_out(part: str, expression: str) -> Row:
    row: Row = _SHARED["shops"][part].try_out(expression)
    return row
