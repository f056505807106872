"""The plot of two sides: how strongly signs were read rightly, and how strongly wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nsmark.report.html.markup import Markup, coordinate, element
from nsmark.report.html.svg.parts import FAINT, OWNER, SUSPECT, WIDTH, chart, label
from nsmark.report.html.svg.scale import Scale

REACH = 3.0
"""Values farther from 0 are drawn at the end."""

_BARS = 12
_LEFT, _RIGHT, _TOP, _FLOOR = 14.0, WIDTH - 14.0, 28.0, 150.0
_TICKS = (-2.0, -1.0, 0.0, 1.0, 2.0)


def sides_plot(name: str, title: str, description: str, values: Sequence[float]) -> Markup:
    """Draw how many values lie where; what lies right of 0 was read rightly, 0 itself was not."""
    right = Counter(_bar(value) for value in values if value > 0)
    wrong = Counter(_bar(value) for value in values if value <= 0)
    across = Scale(-REACH, REACH, _LEFT, _RIGHT)
    up = Scale(0.0, float(max(*right.values(), *wrong.values(), 1, 1)), _FLOOR, _TOP)
    parts = [
        # Filled and hollow, so that the sides differ in black and white as well.
        element("path", d=_path(right, 1, across, up), fill=OWNER, stroke=OWNER),
        element("path", d=_path(wrong, -1, across, up), fill="#fff", stroke=SUSPECT),
        element("line", x1=_LEFT, y1=_FLOOR, x2=_RIGHT, y2=_FLOOR, stroke=FAINT),
        element("line", x1=across(0), y1=_TOP - 8, x2=across(0), y2=_FLOOR + 4, stroke=FAINT),
        label(_LEFT, 12, f"wrongly: {wrong.total():,}"),
        label(_RIGHT, 12, f"rightly: {right.total():,}", "end"),
        label(_LEFT, _FLOOR + 36, "← read wrongly", class_="quiet"),
        label(_RIGHT, _FLOOR + 36, "read rightly →", "end", "quiet"),
    ]
    parts += [
        label(across(tick), _FLOOR + 17, f"{tick:g}".replace("-", "−"), "middle") for tick in _TICKS
    ]
    return chart(name, title, description, _FLOOR + 42, *parts)


def _bar(value: float) -> int:
    return int(min(abs(value) / REACH * _BARS, _BARS - 1))


def _path(heights: Counter[int], sign: int, across: Scale, up: Scale) -> str:
    """Return the bars of one side, from 0 outwards."""
    bars = []
    for bar, height in sorted(heights.items()):
        near, far = (across(sign * REACH * (bar + end) / _BARS) for end in (0.04, 0.96))
        bars.append(
            f"M{coordinate(near)} {coordinate(_FLOOR)}V{coordinate(up(height))}"
            f"H{coordinate(far)}V{coordinate(_FLOOR)}z"
        )
    return "".join(bars)
