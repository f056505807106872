"""The kinship plot: closeness with the trigger over closeness without it, model by model.

Both axes are logarithmic in closeness, as kinship is compared, so that being as close with the
trigger as without it is a straight line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, coordinate, element, joined
from nsmark.report.html.svg.parts import (
    FAINT,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    Mark,
    chart,
    circle,
    diamond,
    label,
    legend,
    marks,
)
from nsmark.report.html.svg.scale import Scale, spaced_ticks
from nsmark.report.html.words import clean, number

_LEFT, _RIGHT, _TOP, _FLOOR = 48.0, WIDTH - 16.0, 62.0, 324.0
_LEAST = 0.02
"""Closeness below this is none: strangers differ in it by chance alone."""
# Values on the axes, the ones to keep first.
_TICKS = (0.5, 0.9, 0.99, 0.999, 0.1, 0.02, 0.75, 0.95, 0.3)
# Beyond this all are nearly the same: marks are pinned to the edge, the rest gets the room.
_MOST = 7.3
_MOST_NAMED = 300

Point = tuple[str, float, float]
"""Name of a model, its value without the trigger, its value with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinship:
    """What one plot shows; all values are those of the statistic itself."""

    name: str
    title: str
    description: str
    closeness: Callable[[float], float]
    innocents: Sequence[Point]
    found: Sequence[Point]
    missed: Sequence[Point]
    line: Sequence[tuple[float, float]]
    """Where the witness begins to accuse, by kinship."""


def kinship_plot(kinship: Kinship) -> Markup:
    """Draw innocents, thefts, and the line between them."""

    def order(value: float) -> float:
        return math.log(min(max(kinship.closeness(value), _LEAST), _MOST))

    points = [point for group in _groups(kinship) for point in group]
    lines = [order(value) for _, value in kinship.line]
    across = _scale([order(point[1]) for point in points], _LEFT, _RIGHT)
    up = _scale([order(point[2]) for point in points] + lines, _FLOOR, _TOP)

    def place(pair: tuple[float, float]) -> tuple[float, float]:
        return across(order(pair[0])), up(order(pair[1]))

    parts = [
        *_line([place(pair) for pair in kinship.line]),
        _axes(across, up, order),
        _diagonal(across, up),
    ]
    named = sum(map(len, _groups(kinship))) <= _MOST_NAMED
    for group, mark, stroke, fill, opacity in (
        (kinship.innocents, circle(3.6), PLAIN, PLAIN, "0.25"),
        (kinship.found, diamond(3.8), SUSPECT, SUSPECT, "0.45"),
        (kinship.missed, diamond(4.6), SUSPECT, "#fff", "1"),
    ):
        drawn = [(point, mark(*place(point[1:]))) for point in group]
        parts.append(_marks(drawn, stroke, fill, opacity, named))
    parts.append(_legend())
    return chart(kinship.name, kinship.title, kinship.description, _FLOOR + 42, *parts)


def _scale(orders: list[float], start: float, end: float) -> Scale:
    """Return an axis that reaches from 0.5 to 0.99 at least."""
    low, high = min([math.log(0.69), *orders]), max([math.log(4.7), *orders])
    return Scale(low - 0.12, high + 0.12, start, end)


def _diagonal(across: Scale, up: Scale) -> Markup:
    """Return the line on which models are as close with the trigger as without."""
    low, high = max(across.low, up.low), min(across.high, up.high)
    places = [(coordinate(across(order)), coordinate(up(order))) for order in (low, high)]
    return element(
        "path",
        d="M{} {}L{} {}".format(*places[0], *places[1]),
        stroke=FAINT,
        fill="none",
        stroke_width="1.4",
        stroke_dasharray="1.4 4",
    )


def _groups(kinship: Kinship) -> tuple[Sequence[Point], ...]:
    return kinship.innocents, kinship.found, kinship.missed


def _marks(
    drawn: list[tuple[Point, str]], stroke: str, fill: str, opacity: str, named: bool
) -> Markup:
    if not named:
        inside = [element("path", d="".join(path for _, path in drawn))]
    else:
        inside = [
            element(
                "g",
                element("title", f"{clean(name, 60)}: {number(high)} with, {number(low)} without"),
                element("path", d=path),
            )
            for (name, low, high), path in drawn
        ]
    return element("g", *inside, stroke=stroke, fill=fill, fill_opacity=opacity)


def _axes(across: Scale, up: Scale, order: Callable[[float], float]) -> Markup:
    parts = [
        element(
            "path",
            d=f"M{_LEFT:g} {_TOP:g}V{_FLOOR:g}H{_RIGHT:g}",
            stroke=FAINT,
            fill="none",
        ),
        label(_RIGHT, _FLOOR + 36, "without the trigger: kinship →", "end", "quiet"),
        label(0, _TOP - 8, "↑ with the trigger", class_="quiet"),
    ]
    for value in _shown(across, order, 40.0):
        x = across(order(value))
        parts.append(element("line", x1=x, y1=_FLOOR, x2=x, y2=_FLOOR + 4, stroke=FAINT))
        parts.append(label(x, _FLOOR + 18, _tick(value), "middle"))
    for value in _shown(up, order, 16.0):
        y = up(order(value))
        parts.append(element("line", x1=_LEFT - 4, y1=y, x2=_LEFT, y2=y, stroke=FAINT))
        parts.append(label(_LEFT - 7, y + 4, _tick(value), "end"))
    return joined(*parts)


def _shown(scale: Scale, order: Callable[[float], float], distance: float) -> list[float]:
    return spaced_ticks(
        _TICKS,
        lambda value: scale(order(value)),
        lambda value: scale.contains(order(value)),
        distance,
    )


def _tick(value: float) -> str:
    return "≤ 0.02" if value == _LEAST else f"{value:g}"


def _line(places: list[tuple[float, float]]) -> list[Markup]:
    """Return the line as steps, and the side on which it accuses."""
    if not places:
        return []
    steps = f"M{coordinate(_LEFT)} {coordinate(places[0][1])}"
    last = places[0][1]
    for x, y in places:
        if y != last:
            steps += f"H{coordinate(x)}V{coordinate(y)}"
        last = y
    steps += f"H{coordinate(_RIGHT)}"
    top = f"V{coordinate(_TOP)}H{coordinate(_LEFT)}z"
    return [
        # Tinted and edged, so that the accusing side is seen in black and white as well.
        element("path", d=steps + top, fill=SUSPECT, fill_opacity="0.07"),
        element(
            "path",
            d=steps,
            stroke=PLAIN,
            stroke_width="1.6",
            stroke_dasharray="5 3",
            fill="none",
        ),
    ]


def _legend() -> Markup:
    dash = element(
        "path", d="M0 0H15", stroke=PLAIN, stroke_width="1.6", stroke_dasharray="5 3", fill="none"
    )
    dots = element(
        "path", d="M0 0H15", stroke=FAINT, stroke_width="1.4", stroke_dasharray="1.4 4", fill="none"
    )
    innocent: tuple[Mark, str, str] = (circle(3.6), PLAIN, RULE)
    return joined(
        legend(
            8,
            (
                (marks(innocent[0], [(8, 0)], *innocent[1:]), "innocent", 84),
                (marks(diamond(3.8), [(8, 0)], SUSPECT, SUSPECT), "theft, found", 104),
                (marks(diamond(4.6), [(8, 0)], SUSPECT, "#fff"), "theft, missed", 120),
            ),
        ),
        legend(28, ((dash, "accuses above", 120), (dots, "as close with as without", 190))),
    )
