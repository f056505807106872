"""The picture beside the page: what attacks cost, against what they leave of the pair code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsmark.attacks.comparison import most_decades, pair_code_decades
from nsmark.attacks.trial import Row
from nsmark.report.html.svg.pareto import Point, pareto_plot

_ALONE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="760" font-family="sans-serif" font-size="11" '
    'style="background:#fff" '
)
"""A file of its own needs what a page gives to its pictures."""
_USELESS = 30.0


def picture(stored: Sequence[dict[str, Any]]) -> str | None:
    """Draw a suite's attacks; None where no pair code was asked for."""
    rows = [Row.from_mapping(row) for row in stored]
    points = [
        Point(row.attack, row.utility.points_lost, left, row.verdict == "owned")
        for row in rows
        if row.error is None and row.utility and (left := pair_code_decades(row)) is not None
    ]
    if not points:
        return None
    upwards = "powers of ten by which the pair code is beyond its line"
    across = "percentage points of accuracy lost"
    drawn = pareto_plot("attacks", points, across, upwards, _USELESS, most_decades(rows))
    return _ALONE + str(drawn).removeprefix("<svg ") + "\n"
