"""The margin plot: innocent models above, simulated thefts below, on one axis of closeness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.svg.parts import (
    FAINT,
    PLAIN,
    SUSPECT,
    WIDTH,
    Mark,
    chart,
    circle,
    diamond,
    label,
    label_near,
    stacked,
)
from nsmark.report.html.svg.scale import Scale, spaced_ticks
from nsmark.report.html.words import clean, number

_LEFT, _RIGHT = 14.0, WIDTH - 14.0
_TOP, _INNOCENT_Y, _THEFT_Y, _AXIS_Y = 34.0, 74.0, 132.0, 142.0
_STEP, _LEVELS = 7.0, 5
_MOST_NAMED = 300
# As the strips of a verification: what is farther than unrelated models is far, however far.
_FARTHEST = -0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What one plot shows."""

    name: str
    title: str
    description: str
    closeness: Callable[[float], float]
    ticks: tuple[float, ...]
    bounds: tuple[float, float] | None
    """Values that the axis spans, farthest first; None: as far as the values ask."""
    innocents: Sequence[tuple[str, float]]
    thefts: Sequence[tuple[str, float]]
    line: float | None


def margin_plot(margin: Margin) -> Markup:
    """Draw the two rows and the line."""
    scale = _scale(margin)

    def place(value: float) -> float:
        return scale(margin.closeness(value))

    parts = [_axis(margin, scale, place)]
    if margin.line is not None:
        parts.append(_line(place(margin.line), margin.line))
    named = len(margin.innocents) + len(margin.thefts) <= _MOST_NAMED
    parts += [
        _row(margin.innocents, place, circle(3.2), _INNOCENT_Y, PLAIN, named),
        _row(margin.thefts, place, diamond(3.6), _THEFT_Y, SUSPECT, named),
    ]
    return chart(margin.name, margin.title, margin.description, _AXIS_Y + 42, *parts)


def _scale(margin: Margin) -> Scale:
    """Choose the part of the axis that is shown: the line stays in it, far thefts are pinned."""
    if margin.bounds is not None:
        low, high = (margin.closeness(value) for value in margin.bounds)
        return Scale(low, high, _LEFT, _RIGHT)
    near = [margin.closeness(value) for _, value in margin.innocents]
    if margin.line is not None:
        near.append(margin.closeness(margin.line))
    thefts = [margin.closeness(value) for _, value in margin.thefts]
    low = max(min([0.0, *near, *thefts]), _FARTHEST)
    farthest = max([0.7, *near])
    high = min(max([farthest, *thefts]), low + 2.5 * (farthest - low))
    padding = 0.04 * (high - low)
    return Scale(low - padding, high + padding, _LEFT, _RIGHT)


def _axis(margin: Margin, scale: Scale, place: Callable[[float], float]) -> Markup:
    shown = spaced_ticks(
        margin.ticks, place, lambda value: scale.contains(margin.closeness(value)), 42.0
    )
    parts = [
        element("line", x1=_LEFT, y1=_AXIS_Y, x2=_RIGHT, y2=_AXIS_Y, stroke=FAINT),
        label(_LEFT, _AXIS_Y + 36, "far", class_="quiet"),
        label(_RIGHT, _AXIS_Y + 36, "closer to the owner's model →", "end", "quiet"),
    ]
    for value in shown:
        x = place(value)
        parts.append(element("line", x1=x, y1=_AXIS_Y, x2=x, y2=_AXIS_Y + 4, stroke=FAINT))
        parts.append(label(x, _AXIS_Y + 17, f"{value:g}".replace("-", "−"), "middle"))
    return joined(*parts)


def _line(x: float, value: float) -> Markup:
    return joined(
        element(
            "rect",
            x=x,
            y=_TOP - 16,
            width=max(_RIGHT - x, 0.0),
            height=_AXIS_Y - _TOP + 16,
            fill=SUSPECT,
            fill_opacity="0.07",
        ),
        element(
            "line",
            x1=x,
            y1=_TOP - 16,
            x2=x,
            y2=_AXIS_Y,
            stroke=PLAIN,
            stroke_width="1.6",
            stroke_dasharray="5 3",
        ),
        label_near(x, 12, f"line {number(value)}"),
    )


def _row(
    values: Sequence[tuple[str, float]],
    place: Callable[[float], float],
    mark: Mark,
    floor: float,
    colour: str,
    named: bool,
) -> Markup:
    by_place = sorted((place(value), name, value) for name, value in values)
    levels = stacked([x for x, _, _ in by_place], _STEP, _LEVELS)
    drawn = [
        (name, value, mark(x, floor - level * _STEP))
        for (x, name, value), level in zip(by_place, levels, strict=True)
    ]
    if not named:
        inside = [element("path", d="".join(path for _, _, path in drawn))]
    else:
        inside = [
            element(
                "g",
                element("title", f"{clean(name, 60)}: {number(value)}"),
                element("path", d=path),
            )
            for name, value, path in drawn
        ]
    return element("g", *inside, fill=colour, fill_opacity="0.3", stroke=colour)
