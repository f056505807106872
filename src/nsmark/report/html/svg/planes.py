"""Charts with two axes: kinship, ROC curves, and answers as points in a plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from nsmark.report.html.markup import coordinate
from nsmark.report.html.svg.chart import (
    FAINT,
    LINE,
    OWNER,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    Chart,
    Kind,
    Place,
    Scale,
    circle,
    cross,
    diamond,
    named,
    polyline,
    spaced_ticks,
    stroke,
)
from nsmark.report.html.words import number

Point = tuple[str, float, float]
"""Name of a model, its value without the trigger, its value with it."""

_LEAST, _MOST = 0.02, 7.3
"""Closeness below the first is none, as strangers differ in it by chance alone; beyond the second
all are nearly the same: marks are pinned to the edge, the rest gets the room."""
# Values on the axes, the ones to keep first.
_TICKS = (0.5, 0.9, 0.99, 0.999, 0.1, 0.02, 0.75, 0.95, 0.3)
_MODELS = (
    Kind("innocent", circle(3.6), PLAIN, PLAIN, "0.25"),
    Kind("theft, found", diamond(3.8), SUSPECT, SUSPECT, "0.45"),
    Kind("theft, missed", diamond(4.6), SUSPECT, "#fff"),
)
_AS_CLOSE = Kind("as close with as without", stroke, FAINT, dashes="1.4 4")


def kinship_plot(
    name: str,
    title: str,
    description: str,
    closeness: Callable[[float], float],
    models: Sequence[Sequence[Point]],
    line: Sequence[tuple[float, float]],
) -> Markup:
    """Draw closeness with the trigger over closeness without it, model by model.

    Both axes are logarithmic in closeness, as kinship is compared, so that being as close with the
    trigger as without it is a straight line.

    Args:
        name: Of the identifiers.
        title: For those who cannot see it.
        description: For them, too.
        closeness: From a value of the statistic to its closeness.
        models: Innocent ones, thefts that are found, thefts that are missed.
        line: Where the witness begins to accuse, by kinship.
    """
    left, right, top, floor = 48.0, WIDTH - 16.0, 62.0, 324.0

    def order(value: float) -> float:
        return math.log(min(max(closeness(value), _LEAST), _MOST))

    def axis(values: list[float], start: float, end: float) -> Scale:
        """Return an axis that reaches from 0.5 to 0.99 at least."""
        orders = [math.log(0.69), math.log(4.7), *map(order, values)]
        return Scale(min(orders) - 0.12, max(orders) + 0.12, start, end)

    points = [point for group in models for point in group]
    across = axis([without for _, without, _ in points], left, right)
    up = axis([*(with_it for _, _, with_it in points), *(value for _, value in line)], floor, top)
    chart = Chart(name, title, description)
    if line:
        corners = [(coordinate(across(order(x))), coordinate(up(order(y)))) for x, y in line]
        steps = (f"H{x}V{y}" for (_, before), (x, y) in pairwise(corners) if y != before)
        outline = f"M{left:g} {corners[0][1]}{''.join(steps)}H{right:g}"
        # Tinted and edged, so that the accusing side is seen in black and white as well.
        chart.add("path", d=f"{outline}V{top:g}H{left:g}z", fill=SUSPECT, fill_opacity="0.07")
        chart.parts.append(LINE.path(outline))
    chart.add("path", d=f"M{left:g} {top:g}V{floor:g}H{right:g}", stroke=FAINT, fill="none")
    chart.label(right, floor + 36, "without the trigger: kinship →", "end", "quiet")
    chart.label(0, top - 8, "↑ with the trigger", class_="quiet")
    for value in spaced_ticks(_TICKS, order, across, 40.0):
        x = across(order(value))
        chart.line((x, floor), (x, floor + 4))
        chart.label(x, floor + 18, _tick(value), "middle")
    for value in spaced_ticks(_TICKS, order, up, 16.0):
        y = up(order(value))
        chart.line((left - 4, y), (left, y))
        chart.label(left - 7, y + 4, _tick(value), "end")
    ends = max(across.low, up.low), min(across.high, up.high)
    chart.parts.append(_AS_CLOSE.path(polyline((across(end), up(end)) for end in ends)))
    for kind, group in zip(_MODELS, models, strict=True):
        drawn = [
            (
                named(of, high, f" with, {number(low)} without"),
                (across(order(low)), up(order(high))),
            )
            for of, low, high in group
        ]
        chart.named_marks(kind, drawn)
    chart.legend(8, *zip(_MODELS, (84, 104, 120), strict=True))
    chart.legend(28, (LINE, 120), (_AS_CLOSE, 190))
    return chart.svg(floor + 42)


def _tick(value: float) -> str:
    return "≤ 0.02" if value == _LEAST else f"{value:g}"


def roc_plot(name: str, title: str, description: str, curve: Sequence[Place]) -> Markup:
    """Draw a curve from (0, 0) to (1, 1); the dotted diagonal is what guessing gives."""
    left, right, top, floor = 40.0, WIDTH - 18.0, 28.0, 200.0
    across, up = Scale(0.0, 1.0, left, right), Scale(0.0, 1.0, floor, top)
    chart = Chart(name, title, description)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = across(share), up(share)
        chart.line((x, top), (x, floor), RULE, stroke_width="0.5")
        chart.line((left, y), (right, y), RULE, stroke_width="0.5")
        chart.label(x, floor + 19, f"{share:.0%}", "middle")
        chart.label(left - 6, y + 4, f"{share:.0%}", "end")
    chart.line((left, floor), (right, top), stroke_dasharray="1 4")
    path = polyline((across(x), up(y)) for x, y in curve)
    chart.add("path", d=f"{path}L{right:g} {floor:g}z", fill=OWNER, fill_opacity="0.07")
    chart.add("path", d=path, stroke=OWNER, stroke_width="2.2", fill="none")
    chart.label(0, 12, "↑ thefts found", class_="quiet")
    chart.label(right, floor + 37, "innocent models accused →", "end", "quiet")
    return chart.svg(floor + 45)


_SIDE, _MARGIN = 320.0, 14.0
# Drawn in this order; the owner's ring stays visible around a suspect's point that covers it.
_ANSWERS = {
    "suspect untriggered": Kind("suspect, without the trigger", cross(2.6), PLAIN),
    "owner triggered": Kind("owner, with the trigger", circle(4.4), OWNER),
    "suspect triggered": Kind("suspect, with the trigger", diamond(2.6), SUSPECT, SUSPECT),
}


def scatter_plot(name: str, title: str, points: dict[str, NDArray[np.float64]]) -> Markup:
    """Draw groups of points, shape (count, 2) each, with the same scale on both axes."""
    counts = ", ".join(f"{len(group)} of {_ANSWERS[kind].text}" for kind, group in points.items())
    chart = Chart(name, title, f"Points: {counts}")
    together = np.concatenate(list(points.values()))
    low, high = together.min(axis=0), together.max(axis=0)
    page = np.array([WIDTH, _SIDE])
    # One factor for both axes: as much as fits, so that no direction is stretched.
    extent, room = high - low, page - 2 * _MARGIN
    factor = float((room[extent > 0] / extent[extent > 0]).min(initial=np.finfo(np.float32).max))
    chart.frame(0.5, 0.5, WIDTH - 0.5, _SIDE - 0.5)
    shown = [kind for kind in _ANSWERS if kind in points]
    for kind in shown:
        places = (points[kind] - (low + high) / 2) * factor + page / 2
        chart.marks(_ANSWERS[kind], [(float(x), float(y)) for x, y in places])
    return chart.svg(chart.legend_below(_SIDE, [_ANSWERS[kind] for kind in shown]) + 2)
