"""The rows of a suite as CSV, Markdown and a page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence

from nsmark.attacks.catalogue import find_attack
from nsmark.attacks.plan import UNTOUCHED, names_in
from nsmark.attacks.trial import Row
from nsmark.attacks.utility import Utility
from nsmark.report.html.blocks import figure, paragraph, section, table
from nsmark.report.html.document import document
from nsmark.report.html.markup import element
from nsmark.report.html.svg.pareto import Point, pareto_plot
from nsmark.verification.statistics import STATISTIC_NAMES
from nsmark.verification.verdict import PAIR_LINES

_USELESS = 0.5
"""A similarity that has lost so much is drawn at the edge."""
_PLENTY = 6.0
"""So is evidence that is as far beyond its line: a four-hundredth is left unexplained."""
_ALL_SIGNS = 26.0
"""Decades of the pair code's p beyond 1e-12: 1e-38 is as much as 256 signs can show."""
_ALL_BETS = 62.0
"""Decades of what bets on them win beyond 10¹⁵: 10⁷⁷ is as much as they can."""
_AS_IT_IS = "The model as it is"


def csv_table(rows: Sequence[Row]) -> str:
    """Return one line per attack with every statistic, for spreadsheets."""
    stream = io.StringIO()
    head = ["attack", "verdict", "shown_by", "margin", "similarity", "accuracy_before", "accuracy"]
    head += ["seconds", *STATISTIC_NAMES, *(f"untriggered_{n}" for n in STATISTIC_NAMES), "error"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        used = row.utility
        values = [row.attack, row.verdict, " ".join(row.passed), row.margin]
        values += [used.similarity, used.accuracy_before, used.accuracy] if used else [None] * 3
        values.append(row.seconds)
        for side in (row.statistics, row.untriggered):
            values += [(side or {}).get(name) for name in STATISTIC_NAMES]
        writer.writerow(["" if v is None else v for v in [*values, row.error]])
    return stream.getvalue()


def counted(rows: Sequence[Row]) -> str:
    """Return after how many attacks ownership is shown, by what they cost, in a sentence.

    The untouched model is no attack, nor is what changes nothing about this model.
    """
    untouched = next((row for row in rows if row.attack == UNTOUCHED), None)
    run = [row for row in rows if row.error is None and row.attack != UNTOUCHED]
    idle = [row for row in run if untouched is not None and is_without_effect(row, untouched)]
    run = [row for row in run if row not in idle]
    failed = sum(row.error is not None for row in rows)
    shown = sum(row.verdict == "owned" for row in run)
    by_cost = []
    for words, lowest, highest in COSTS:
        alike = [row for row in run if row.utility and lowest < row.utility.points_lost <= highest]
        if alike:
            owned = sum(row.verdict == "owned" for row in alike)
            by_cost.append(f"{owned} of {len(alike)} that cost {words} of accuracy")
    told = [f"Ownership is shown after {shown} of {len(run)} attacks"]
    told[0] += f": {', '.join(by_cost)}." if len(by_cost) > 1 else "."
    if idle:
        names = ", ".join(row.attack for row in idle)
        told.append(f"Not counted, since they change nothing here: {names}.")
    if failed:
        told.append(f"{failed} could not be run.")
    return " ".join(told)


COSTS = (
    ("at most one point", float("-inf"), 1.0),
    ("one to five points", 1.0, 5.0),
    ("more than five points", 5.0, float("inf")),
)
"""Kinds of attacks by what they cost: above the first number, at most the second."""


def is_without_effect(row: Row, untouched: Row) -> bool:
    """Return whether a model answers after an attack as it did before."""
    now = row.statistics or {}
    if row.utility is None or row.utility.similarity <= 1 - 1e-9:
        return False
    return all(_is_as(now.get(name), value) for name, value in (untouched.statistics or {}).items())


def _is_as(now: float | None, before: float | None) -> bool:
    if now is None or before is None:
        return now is before
    return abs(now - before) <= 1e-6 * max(1.0, abs(before))


def markdown_table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    columns = _told(_COLUMNS, rows)
    head, *body = [
        columns,
        *([text for name, text in _cells(row) if name in columns] for row in rows),
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cells) + " |" for cells in body]
    return "\n".join(lines)


def comparison_page(rows: Sequence[Row], about: Sequence[str]) -> str:
    """Return a page that compares the attacks: what they cost, what they leave.

    Args:
        rows: Of a suite.
        about: What was attacked, and how to repeat it, in sentences.
    """
    run = [row for row in rows if row.error is None]
    failed = [row for row in rows if row.error is not None]
    content = [
        paragraph(counted(rows), class_="sentence"),
        section(1, "What was tried", *(paragraph(text) for text in about)),
        section(
            2,
            "What attacks cost, and what they leave",
            paragraph(WITNESSES_IN_WORDS),
            *(element("div", *pair, class_="side-by-side") for pair in _plots(run)),
        ),
    ]
    columns = _told(_PAGE_COLUMNS, run)
    for number, (kind, chosen) in enumerate(_by_kind(run).items(), 3):
        caption = kind if kind == _AS_IT_IS else f"Attacks on {kind}"
        body = [
            (row.attack, [text for name, text in _cells(row) if name in columns]) for row in chosen
        ]
        content.append(section(number, caption, table(caption, "attack", columns, body)))
    if failed:
        lines = [paragraph(f"{row.attack}: {row.error}") for row in failed]
        content.append(section(3 + len(_by_kind(run)), "What could not be run", *lines))
    return document("nsmark: attacks compared", "Attacks on a watermark, compared", *content)


WITNESSES_IN_WORDS = (
    "Ownership may be shown by witnesses that are held against innocent models, by the readout "
    "derived from the signature, or by the pair code; the tables say by which. The margin tells of "
    "the first kind alone: how far the farthest of them lies beyond its line. Where it is below 0, "
    "none of them accuses, and the pair code may."
)


def _plots(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return pairs of pictures: similarity and accuracy, for each kind of evidence there is."""
    kinds = [("margin", "margin beyond the nearest line", _margin, _PLENTY)]
    if any(pair_code_decades(row) is not None for row in rows):
        upwards = "pair code: decades of p beyond its line"
        kinds.append(("pairs", upwards, pair_code_decades, most_decades(rows)))
    return [_plot_pair(rows, *kind) for kind in kinds]


def _plot_pair(
    rows: Sequence[Row],
    name: str,
    upwards: str,
    left: Callable[[Row], float | None],
    plenty: float,
) -> tuple[str, str]:
    def points(lost: Callable[[Utility], float]) -> list[Point]:
        return [
            Point(row.attack, lost(row.utility), height, row.verdict == "owned")
            for row in rows
            if row.utility is not None and (height := left(row)) is not None
        ]

    return (
        figure(
            "Similarity between texts",
            pareto_plot(
                f"similarity-{name}",
                points(lambda utility: 1 - utility.similarity),
                "similarity lost (1 − correlation with before)",
                upwards,
                _USELESS,
                plenty,
            ),
            "Each mark is one attack. The line joins those that no other beats.",
        ),
        figure(
            "Accuracy on a task",
            pareto_plot(
                f"accuracy-{name}",
                points(lambda utility: utility.points_lost),
                "percentage points of accuracy lost",
                upwards,
                100 * _USELESS,
                plenty,
            ),
            "The classifier is learned anew after every attack, as a thief would.",
        ),
    )


def _margin(row: Row) -> float | None:
    return row.margin


def pair_code_decades(row: Row) -> float | None:
    """Return by how many powers of ten the pair code is beyond its line, read either way."""
    statistics = row.statistics or {}
    decades = [
        math.log10(line) - math.log10(p_value)
        for name, line in PAIR_LINES
        if (p_value := statistics.get(name)) is not None
    ]
    return max(decades, default=None)


def most_decades(rows: Sequence[Row]) -> float:
    """Return how far beyond its line a pair code can be, as it was read."""
    return _ALL_BETS if _are_bet_on(rows) else _ALL_SIGNS


def _are_bet_on(rows: Sequence[Row]) -> bool:
    return any((row.statistics or {}).get("pair_wager_p_value") is not None for row in rows)


def _by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by what is attacked; several attacks one after the other are their own kind."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        names = names_in(row.attack)
        if row.attack == UNTOUCHED:
            kind = _AS_IT_IS
        elif len(names) > 1:
            kind = "several places, one after the other"
        else:
            kind = _PLACES[find_attack(names[0]).kind]
        kinds.setdefault(kind, []).append(row)
    return kinds


_PLACES = {
    "outputs": "answers",
    "texts": "queries",
    "weights": "weights",
    "training": "weights, by training",
    "surrogate": "answers, by another model that learns them",
}


def _cells(row: Row) -> list[tuple[str, str]]:
    utility, statistics = row.utility, row.statistics or {}
    if utility is None:
        return [("attack", row.attack), ("verdict", f"not run: {row.error}")] + [
            (name, "–") for name in _COLUMNS[2:]
        ]
    values = {
        "attack": row.attack,
        "verdict": str(row.verdict).replace("_", " "),
        "shown by": _shown_by(row.passed),
        "margin": _number(row.margin, 2),
        "similarity": _number(utility.similarity),
        "accuracy": _number(utility.accuracy),
        "points lost": _number(utility.points_lost, 1),
        "extraction": _number(statistics.get("extraction_rate")),
        "degree": _number(statistics.get("invariant_matching_degree"), 1),
        "predicted": _number(statistics.get("predictability")),
        "aligned": _number(statistics.get("aligned_predictability")),
        "pairs": _number(statistics.get("pair_code_rate")),
        "p of pairs": _tiny(statistics.get("pair_code_p_value")),
        _BY_BETTING: _tiny(statistics.get("pair_wager_p_value")),
        "seconds": _number(row.seconds, 1),
    }
    return list(values.items())


_BY_BETTING = "p by betting"
_COLUMNS = (
    "attack",
    "verdict",
    "shown by",
    "margin",
    "similarity",
    "accuracy",
    "points lost",
    "extraction",
    "degree",
    "predicted",
    "aligned",
    "pairs",
    "p of pairs",
    _BY_BETTING,
    "seconds",
)


_PAGE_COLUMNS = (
    "verdict",
    "shown by",
    "margin",
    "similarity",
    "points lost",
    "extraction",
    "pairs",
    "p of pairs",
    _BY_BETTING,
)
"""What there is room for on a page, beside names of attacks."""


def _told(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return columns; rows of before the pair code was bet on need none for that."""
    return [name for name in columns if name != _BY_BETTING or _are_bet_on(rows)]


def _shown_by(passed: Sequence[str]) -> str:
    """Return the first witness, and how many more there are: all of them would fill the page."""
    if not passed:
        return "–"
    more = f" +{len(passed) - 1}" if len(passed) > 1 else ""
    return passed[0].replace("_", " ") + more


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _tiny(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
