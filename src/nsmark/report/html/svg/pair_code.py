"""Charts of a pair code: a mark for each entry of its table, and how strongly each was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nsmark.report.html.markup import coordinate
from nsmark.report.html.svg.chart import FAINT, OWNER, SUSPECT, WIDTH, Chart, Kind, Mark, Scale

_LARGEST_SIDE, _LARGEST_CELL, _MARGIN, _LEGEND_RADIUS = 320.0, 26.0, 6.0, 6.5
REACH = 3.0
"""Values farther from 0 are drawn at the end."""
_BARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Entries that are drawn alike."""

    text: str
    numbers: Sequence[int]
    """Entries, row by row from 0."""
    mark: Callable[[float], Mark]
    share: float
    """How much of its cell a mark fills."""
    colour: str
    fill: str = "none"

    def kind(self, room: float) -> Kind:
        """Return how an entry is drawn that has so much room around its middle."""
        return Kind(self.text, self.mark(self.share * room), self.colour, self.fill)


def grid_plot(
    name: str, title: str, description: str, size: int, groups: Sequence[Group]
) -> Markup:
    """Draw a square table; groups without entries are left out, of the legend as well."""
    chart = Chart(name, title, description)
    cell = min(_LARGEST_SIDE / size, _LARGEST_CELL)
    left, side = (WIDTH - cell * size) / 2, cell * size
    floor = 1 + side + 2 * _MARGIN
    chart.frame(left - _MARGIN, 1.0, left + side + _MARGIN, floor)
    shown = [group for group in groups if group.numbers]
    for group in shown:
        entries = (divmod(number, size) for number in group.numbers)
        places = [
            (left + (column + 0.5) * cell, 1 + _MARGIN + (row + 0.5) * cell)
            for row, column in entries
        ]
        chart.marks(group.kind(cell / 2), places)
    return chart.svg(chart.legend_below(floor, [group.kind(_LEGEND_RADIUS) for group in shown]))


def sides_plot(name: str, title: str, description: str, values: Sequence[float]) -> Markup:
    """Draw how many values lie where; what lies right of 0 was read rightly, 0 itself was not."""
    left, right, top, floor = 14.0, WIDTH - 14.0, 28.0, 150.0
    chart = Chart(name, title, description)
    across = Scale(-REACH, REACH, left, right)

    def bars(chosen: list[float]) -> Counter[int]:
        return Counter(int(min(abs(value) / REACH * _BARS, _BARS - 1)) for value in chosen)

    rightly = bars([value for value in values if value > 0])
    wrongly = bars([value for value in values if value <= 0])
    up = Scale(0.0, float(max(*rightly.values(), *wrongly.values(), 1, 1)), floor, top)
    # Filled and hollow, so that the sides differ in black and white as well.
    for heights, sign, colour, fill in ((rightly, 1, OWNER, OWNER), (wrongly, -1, SUSPECT, "#fff")):
        outline = ""
        for bar, height in sorted(heights.items()):
            near, far = (across(sign * REACH * (bar + end) / _BARS) for end in (0.04, 0.96))
            outline += f"M{coordinate(near)} {floor:g}V{coordinate(up(height))}"
            outline += f"H{coordinate(far)}V{floor:g}z"
        chart.add("path", d=outline, fill=fill, stroke=colour)
    chart.line((left, floor), (right, floor))
    chart.line((across(0), top - 8), (across(0), floor), FAINT)
    chart.label(left, 12, f"wrongly: {wrongly.total():,}")
    chart.label(right, 12, f"rightly: {rightly.total():,}", "end")
    chart.ends(left, right, floor + 36, "← read wrongly", "read rightly →")
    chart.ticks_below((-2.0, -1.0, 0.0, 1.0, 2.0), across, floor)
    return chart.svg(floor + 42)
