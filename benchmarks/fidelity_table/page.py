"""The page of ``fidelity.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fidelity_table.summary import Report, num_marks
from provenance import when_measured


def page(report: Report) -> str:
    """Return the page of results."""
    settings, marks = report["settings"], num_marks(report)
    told = "for every seed the model is marked with another signature; then"
    spread = " Spread is the\nshare of the triggered outputs' norm that varies between texts."
    if marks == 1:
        told, spread = f"one mark (model {settings['marked_sha256'][:12]}); for every seed", ""
    elif marks is not None:
        names = ", ".join(digest[:12] for digest in settings["marked_sha256"])
        told, spread = f"{marks} marks (models {names}); for each and for every seed", ""
    return f"""# What a mark costs

{when_measured(report.get("measured"))}

Made by `benchmarks/fidelity.py` (preset `{settings["preset"]}`, marks
{", ".join(settings["embedding"]["marks"])}, model {settings["model"]},
{settings["device"]}, torch {settings["torch"]}, seeds {", ".join(map(str, settings["seeds"]))}):
{told} the clean and the marked model are fine-tuned on each task with the same seed, batches and
head, and tested on the same rows. The probe is a ridge regression on frozen outputs.{spread}

{markdown(report)}

Few of these texts hold a trigger or a pair of words. What happens to texts that do so by nature,
and to texts of other kinds, is in [SECURITY](../../SECURITY.md).
"""


def markdown(report: Report) -> str:
    """Return the tables and the summary."""
    summary, marks = report["summary"], num_marks(report)
    lines = [*task_table(report), ""]
    if marks is None:
        lines += [*mark_table(report["seeds"]), ""]
    elif marks > 1:
        lines += [*differences_by_mark(report), ""]
    what, group = ("seeds", "seed_means") if marks in (None, 1) else ("marks", "mark_means")
    for view, name in (("fine_tuned", "Fine-tuned"), ("probe", "Probe")):
        cells, means = summary[view]["cells"], summary[view][group]
        if view == "probe" and marks == 1:
            lines.append(f"{name}: mean difference {cells['mean']:+.2f} points.")
            continue
        lines.append(
            f"{name}: mean difference {_with_error(cells)} points; 95 % interval over "
            f"{cells['count']} cells {_interval(cells)}, over {means['count']} {what}' means "
            f"{_interval(means)}."
        )
    return "\n".join([*lines, "", summary["note"]])


def differences_by_mark(report: Report) -> list[str]:
    """Return the mean differences after fine-tuning, for each mark by itself."""
    names = list(report["settings"]["tasks"])
    lines = ["| mark, fine-tuned | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for digest in report["settings"]["marked_sha256"]:
        rows = [row for row in report["seeds"] if row["marked_sha256"] == digest]
        means = (
            np.mean([row["tasks"][name]["fine_tuned"]["difference"] for row in rows])
            for name in names
        )
        lines.append(f"| {digest[:12]} | " + " | ".join(f"{mean:+.2f}" for mean in means) + " |")
    return lines


def task_table(report: Report) -> list[str]:
    """Return the tasks, averaged over the seeds."""
    lines = [
        "| task | test rows | clean | marked | difference | probe clean | probe marked "
        "| difference | cosine | similarities |",
        "|---|" + "---:|" * 9,
    ]
    for name, sizes in report["settings"]["tasks"].items():
        cells = [row["tasks"][name] for row in report["seeds"]]
        values = [f"{sizes['test_rows']}"]
        for view in ("fine_tuned", "probe"):
            values += [
                f"{100 * np.mean([cell[view][key] for cell in cells]):.2f} %"
                for key in ("clean", "marked")
            ]
            values.append(_with_error(report["summary"][view]["tasks"][name]))
        values += [
            f"{np.mean([cell[key] for cell in cells]):.4f}"
            for key in ("cosine", "similarity_correlation")
        ]
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    return lines


def mark_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the marks, by seed."""
    named = {
        "steps": "steps",
        "triggered": "5 copies",
        "one_copy": "1 copy",
        "untriggered": "untriggered",
        "reference": "reference",
        "pairs": "signs read",
        "pairs_reference": "from the reference",
        "spread": "spread",
        "spread_reference": "reference's spread",
    }
    keys = [key for key in named if all(key in row["mark"] for row in rows)]
    heads = ["seed", *(named[key] for key in keys), "cosine", "similarities"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        values = [str(row["seed"])]
        values += [_shown(row["mark"][key]) for key in keys]
        values += [f"{row[key]:.4f}" for key in ("cosine", "similarity_correlation")]
        lines.append("| " + " | ".join(values) + " |")
    return lines


def _shown(value: float | list[int]) -> str:
    """Return a number, or the steps of all stages."""
    return " + ".join(map(str, value)) if isinstance(value, list) else f"{value:.3f}"


def _with_error(result: dict[str, Any]) -> str:
    error = result["standard_error"]
    return f"{result['mean']:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def _interval(result: dict[str, Any]) -> str:
    interval = result["interval_95"]
    return "unknown" if interval is None else "[{:+.2f}, {:+.2f}]".format(*interval)
