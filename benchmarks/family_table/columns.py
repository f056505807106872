"""The columns of the page's tables, and how their numbers are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from family_table.report import Report

Column = tuple[str, Callable[[Report], str]]


def table(columns: Sequence[Column], rows: Sequence[Report]) -> str:
    """Return a Markdown table."""
    lines = [
        "| " + " | ".join(title for title, _ in columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in rows:
        lines.append("| " + " | ".join(show(row) for _, show in columns) + " |")
    return "\n".join(lines)


def entry(*path: str, digits: int | None = None) -> Callable[[Report], str]:
    """Return a function that shows one number of a row; a dash where there is none."""

    def show(row: Report) -> str:
        value: Any = row
        for key in path:
            value = None if value is None else value[key]
        if value is None:
            return "–"
        return str(value) if digits is None else f"{value:.{digits}f}"

    return show


def degrees(name: str) -> Callable[[Report], str]:
    """Return a function that shows both forms of a matching degree."""
    return lambda row: " / ".join(
        f"{row['matching_degree'][name][form]:.3g}" for form in ("invariant", "paper")
    )


def from_to(first: Sequence[str], last: Sequence[str]) -> Callable[[Report], str]:
    """Return a function that shows two numbers with an arrow; one dash where there are none."""
    shows = entry(*first, digits=3), entry(*last, digits=3)
    return lambda row: " → ".join(dict.fromkeys(show(row) for show in shows))


def parameters(row: Report) -> str:
    """Show the model's size."""
    return f"{row['model']['parameters'] / 1e6:,.1f} M"


def memory(row: Report) -> str:
    """Show the peak memory."""
    return f"{row['training']['peak_memory_bytes'] / 2**30:.1f} GiB"


MARK_COLUMNS: tuple[Column, ...] = (
    ("model", entry("name")),
    ("kind", entry("kind")),
    ("n", entry("matching_degree", "output_dim")),
    ("q", entry("matching_degree", "num_texts")),
    ("null", entry("matching_degree", "null_dim")),
    ("triggered", entry("extraction", "triggered", digits=4)),
    ("1 copy", entry("extraction", "one_copy", digits=4)),
    ("clean", entry("extraction", "untriggered", digits=4)),
    ("reference", entry("extraction", "reference", digits=4)),
    ("derived", entry("extraction", "derived", digits=4)),
    ("degree: marked", degrees("marked")),
    ("degree: reference", degrees("reference")),
    ("chance", entry("matching_degree", "chance", digits=1)),
)
COST_COLUMNS: tuple[Column, ...] = (
    ("model", entry("name")),
    ("parameters", parameters),
    ("steps", entry("training", "steps")),
    ("time, s", entry("training", "seconds", digits=1)),
    ("memory", memory),
    ("cosine", entry("fidelity", "cosine", digits=4)),
    ("similarity", entry("fidelity", "similarity_correlation", digits=4)),
    ("distance", entry("fidelity", "squared_distance_in_variances", digits=4)),
    (
        "LM loss",
        from_to(("fidelity", "language_loss_before"), ("fidelity", "language_loss_after")),
    ),
    (
        "pretraining",
        from_to(("pretraining", "language_loss_start"), ("pretraining", "language_loss_end")),
    ),
)
