"""The grid of a pair code: one mark for each entry of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, element
from nsmark.report.html.svg.parts import RULE, WIDTH, Mark, chart, legend, marks

_SIDE, _LARGEST_CELL = 320.0, 26.0
_MARGIN = 6.0
_LEGEND_RADIUS = 6.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Entries that are drawn alike."""

    text: str
    numbers: Sequence[int]
    """Entries, row by row from 0."""
    mark: Callable[[float], Mark]
    share: float
    """How much of its cell a mark fills."""
    stroke: str
    fill: str = "none"


def grid_plot(name: str, title: str, description: str, size: int, groups: list[Group]) -> Markup:
    """Draw a square table; groups without entries are left out, of the legend as well."""
    cell = min(_SIDE / size, _LARGEST_CELL)
    side = cell * size
    left = (WIDTH - side) / 2
    shown = [group for group in groups if group.numbers]
    parts = [
        element(
            "rect",
            x=left - _MARGIN,
            y=1.0,
            width=side + 2 * _MARGIN,
            height=side + 2 * _MARGIN,
            fill="none",
            stroke=RULE,
        )
    ]
    for group in shown:
        places = (
            (left + (column + 0.5) * cell, 1 + _MARGIN + (row + 0.5) * cell)
            for row, column in (divmod(number, size) for number in group.numbers)
        )
        mark = group.mark(group.share * cell / 2)
        parts.append(marks(mark, places, group.stroke, group.fill))
    floor = side + 2 * _MARGIN + 1
    for line, group in enumerate(shown):
        drawn = marks(group.mark(group.share * _LEGEND_RADIUS), [(8, 0)], group.stroke, group.fill)
        parts.append(legend(floor + 17 + 19 * line, [(drawn, group.text, WIDTH)]))
    return chart(name, title, description, floor + 10 + 19 * len(shown), *parts)
