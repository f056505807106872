"""The rows of a suite as CSV, Markdown and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from nsmark.attacks.plan import UNTOUCHED, names_in
from nsmark.attacks.registry import find_attack
from nsmark.attacks.trial import Row
from nsmark.report.html.blocks import figure, paragraph, section, table
from nsmark.report.html.document import document
from nsmark.report.html.markup import element
from nsmark.report.html.svg.pareto import Point, pareto_plot

_STATISTICS = (
    "extraction_rate",
    "derived_extraction_rate",
    "invariant_matching_degree",
    "subspace_overlap",
    "predictability",
    "aligned_subspace_overlap",
    "aligned_predictability",
    "pair_code_rate",
    "pair_code_p_value",
)
_USELESS = 0.5
"""A similarity that has lost so much is drawn at the edge."""
_PLENTY = 6.0
"""So is evidence that is as far beyond its line: a four-hundredth is left unexplained."""
_AS_IT_IS = "The model as it is"


def csv_table(rows: Sequence[Row]) -> str:
    """Return one line per attack, for spreadsheets."""
    stream = io.StringIO()
    head = ["attack", "verdict", "margin", "similarity", "accuracy_before", "accuracy"]
    head += ["seconds", *_STATISTICS, "error"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        utility, statistics = row.get("utility") or {}, row.get("statistics") or {}
        values = [row["attack"], row.get("verdict"), row.get("margin")]
        values += [utility.get(name) for name in ("similarity", "accuracy_before", "accuracy")]
        values += [row.get("seconds"), *(statistics.get(name) for name in _STATISTICS)]
        writer.writerow(["" if v is None else v for v in [*values, row.get("error")]])
    return stream.getvalue()


def markdown_table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    head, *body = [list(_COLUMNS), *([text for _, text in _cells(row)] for row in rows)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cells) + " |" for cells in body]
    return "\n".join(lines)


def comparison_page(rows: Sequence[Row], about: Sequence[str]) -> str:
    """Return a page that compares the attacks: what they cost, what they leave.

    Args:
        rows: Of a suite.
        about: What was attacked, and how to repeat it, in sentences.
    """
    run = [row for row in rows if row.get("error") is None]
    failed = [row for row in rows if row.get("error") is not None]
    shown = sum(row["verdict"] == "owned" for row in run)
    content = [
        paragraph(f"Ownership is shown after {shown} of {len(run)} attacks.", class_="sentence"),
        section(1, "What was tried", *(paragraph(text) for text in about)),
        section(
            2,
            "What attacks cost, and what they leave",
            element("div", *_plots(run), class_="side-by-side"),
        ),
    ]
    for number, (kind, chosen) in enumerate(_by_kind(run).items(), 3):
        caption = kind if kind == _AS_IT_IS else f"Attacks on {kind}"
        body = [(row["attack"], [text for _, text in _cells(row)[1:]]) for row in chosen]
        content.append(section(number, caption, table(caption, "attack", list(_COLUMNS)[1:], body)))
    if failed:
        lines = [paragraph(f"{row['attack']}: {row['error']}") for row in failed]
        content.append(section(3 + len(_by_kind(run)), "What could not be run", *lines))
    return document("nsmark: attacks compared", "Attacks on a watermark, compared", *content)


def _plots(rows: Sequence[Row]) -> list[str]:
    def points(lost: Callable[[dict[str, Any]], float]) -> list[Point]:
        return [
            Point(row["attack"], lost(row["utility"]), row["margin"], row["verdict"] == "owned")
            for row in rows
            if row.get("margin") is not None
        ]

    upwards = "evidence beyond the nearest line"
    return [
        figure(
            "Similarity between texts",
            pareto_plot(
                "similarity",
                points(lambda utility: 1 - utility["similarity"]),
                "similarity lost (1 − correlation with before)",
                upwards,
                _USELESS,
                _PLENTY,
            ),
            "Each mark is one attack. The line joins those that no other beats.",
        ),
        figure(
            "Accuracy on a task",
            pareto_plot(
                "accuracy",
                points(lambda utility: utility["points_lost"]),
                "percentage points of accuracy lost",
                upwards,
                100 * _USELESS,
                _PLENTY,
            ),
            "The classifier is learned anew after every attack, as a thief would.",
        ),
    ]


def _by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by what is attacked; several attacks one after the other are their own kind."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        names = names_in(row["attack"])
        if row["attack"] == UNTOUCHED:
            kind = _AS_IT_IS
        elif len(names) > 1:
            kind = "several places, one after the other"
        else:
            kind = _PLACES[find_attack(names[0]).recipe().kind]
        found.setdefault(kind, []).append(row)
    return found


_PLACES = {
    "outputs": "answers",
    "texts": "queries",
    "weights": "weights",
    "training": "weights, by training",
    "surrogate": "answers, by another model that learns them",
}


def _cells(row: Row) -> list[tuple[str, str]]:
    utility, statistics = row.get("utility") or {}, row.get("statistics") or {}
    if row.get("error") is not None:
        return [("attack", row["attack"]), ("verdict", f"not run: {row['error']}")] + [
            (name, "–") for name in list(_COLUMNS)[2:]
        ]
    values = {
        "attack": row["attack"],
        "verdict": str(row["verdict"]).replace("_", " "),
        "margin": _number(row["margin"], 2),
        "similarity": _number(utility["similarity"]),
        "points lost": _number(utility["points_lost"], 1),
        "extraction": _number(statistics.get("extraction_rate")),
        "degree": _number(statistics.get("invariant_matching_degree"), 1),
        "predicted": _number(statistics.get("predictability")),
        "aligned": _number(statistics.get("aligned_predictability")),
        "pairs": _number(statistics.get("pair_code_rate")),
    }
    return list(values.items())


_COLUMNS = (
    "attack",
    "verdict",
    "margin",
    "similarity",
    "points lost",
    "extraction",
    "degree",
    "predicted",
    "aligned",
    "pairs",
)


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
