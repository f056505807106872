"""What the seeds' comparisons say together, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

Report = dict[str, Any]

NOTE = (
    "Differences are marked minus clean, in points of test accuracy. Cells of one task share its "
    "training and test set, and cells of one seed share a mark, so the cells are not fully "
    "independent and the interval over them may be too narrow; the one over the seeds' means "
    "treats tasks as fixed and has few degrees of freedom. An interval that holds 0 does not show "
    "that there is no cost."
)
ONE_MARK = (
    "Differences are marked minus clean, in points of test accuracy. All cells share one mark, and "
    "cells of one task its training and test set: the intervals tell of chance in fine-tuning, not "
    "of other marks; the probe has none of that, so it has no interval. Cosines and "
    "similarities are of the tasks' test texts, which are unlike the texts the mark was trained "
    "with. An interval that holds 0 does not show that there is no cost."
)
SEVERAL_MARKS = (
    "Differences are marked minus clean, in points of test accuracy. "
    "Cells of one mark share it, and cells of one task "
    "its training and test set: the interval over them may be too narrow; the one over the marks' "
    "means treats tasks as fixed and has few degrees of freedom, and so have the errors beside the "
    "tasks, which are of the marks' means. Cosines and similarities are of the tasks' test texts, "
    "which are unlike the texts the mark was trained with. An interval that holds 0 does not show "
    "that there is no cost."
)


def mean_and_error(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and its standard error; None where one value is too few."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return {"count": len(values), "mean": float(np.mean(values)), "standard_error": error}


def mean_interval(values: Sequence[float]) -> dict[str, Any]:
    """Return the same with the mean's t-interval."""
    result = mean_and_error(values)
    if result["standard_error"] is None:
        return {**result, "interval_95": None}
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * result["standard_error"]
    return {**result, "interval_95": [result["mean"] - reach, result["mean"] + reach]}


def num_marks(report: Report) -> int | None:
    """Return how many marked models all seeds share; None where every seed has its own."""
    digests = report["settings"].get("marked_sha256")
    if digests is None:
        return None
    return 1 if isinstance(digests, str) else len(digests)


def summarise(rows: Sequence[dict[str, Any]], *, num_marks: int | None = None) -> dict[str, Any]:
    """Return the paired differences' means and intervals, over cells and groups, and by task.

    Args:
        rows: One for every seed, those of one mark together.
        num_marks: How many marked models they share equally; None where every seed has its own.
    """
    note = {None: NOTE, 1: ONE_MARK}.get(num_marks, SEVERAL_MARKS)
    summary: dict[str, Any] = {"note": note}
    for view in ("fine_tuned", "probe"):
        # One row per seed, one column per task.
        differences = np.array(
            [[cell[view]["difference"] for cell in row["tasks"].values()] for row in rows]
        )
        if num_marks is not None:
            by_mark = differences.reshape(num_marks, -1, differences.shape[1])
            if view == "probe":  # it does not differ from seed to seed
                differences = by_mark[:, 0]
        # What was drawn anew from group to group: marks where there are several, else seeds.
        groups = differences if num_marks in (None, 1) else by_mark.mean(axis=1)
        summary[view] = {
            "cells": mean_interval(differences.ravel()),
            "seed_means" if num_marks in (None, 1) else "mark_means": mean_interval(
                groups.mean(axis=1)
            ),
            # No interval: accuracies of few seeds on one test set often agree to the last row.
            "tasks": {
                name: mean_and_error(column)
                for name, column in zip(rows[0]["tasks"], groups.T, strict=True)
            },
        }
    return summary


def merged(parts: Sequence[Report]) -> Report:
    """Return one report of runs that differ in nothing but their seeds and marked models."""
    settings = [dict(part["settings"], seeds=None, marked_sha256=None) for part in parts]
    digests = [part["settings"].get("marked_sha256") for part in parts]
    if any(isinstance(digest, list) for digest in digests):
        raise SystemExit("a report of several marks is not merged again: give its parts")
    marks = list(dict.fromkeys(digests))
    if any(other != settings[0] for other in settings) or (None in marks and len(marks) > 1):
        raise SystemExit("the runs differ in more than their seeds")
    rows = [
        row if len(marks) == 1 else {"marked_sha256": digest, **row}
        for digest, part in zip(digests, parts, strict=True)
        for row in part["seeds"]
    ]
    places = {digest: place for place, digest in enumerate(marks)}
    rows.sort(key=lambda row: (places.get(row.get("marked_sha256"), 0), row["seed"]))
    seeds = [row["seed"] for row in rows]
    if len(marks) > 1:
        seeds = sorted(set(seeds))
        if [row["seed"] for row in rows] != seeds * len(marks):
            raise SystemExit("the marks do not have the same seeds")
    report: Report = {
        "measured": parts[0].get("measured"),
        "settings": parts[0]["settings"]
        | {"seeds": seeds, "marked_sha256": marks if len(marks) > 1 else marks[0]},
        "seeds": rows,
    }
    return report | {"summary": summarise(rows, num_marks=num_marks(report))}
