"""The strip plot: one witness, the innocent models it was calibrated on, its line, the suspect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.svg.parts import (
    FAINT,
    PLAIN,
    SUSPECT,
    WIDTH,
    chart,
    circle,
    diamond,
    label,
    label_near,
    marks,
    stacked,
)
from nsmark.report.html.svg.scale import Scale, nice_ticks, spaced_ticks
from nsmark.report.html.words import clean, number

HEIGHT = 146.0
_LEFT, _RIGHT = 14.0, WIDTH - 14.0
_LINE_LABEL_Y, _SUSPECT_LABEL_Y, _SUSPECT_Y, _FLOOR_Y, _AXIS_Y = 12.0, 30.0, 43.0, 96.0, 104.0
_DOT, _LEVELS = 3.2, 6
_TICK_DISTANCE = 42.0
# Names on so many dots would make the page megabytes long, and nobody could point at one.
_MOST_NAMED = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """What one plot shows."""

    name: str
    title: str
    description: str
    closeness: Callable[[float], float]
    """From a value to its place: larger is closer to the owner's model, drawn further right."""
    ticks: tuple[float, ...]
    """Values that may be written on the axis, the ones to keep first; empty: round ones."""
    bounds: tuple[float, float] | None
    """Two values that the axis spans, farthest first; None: as far as the values ask."""
    suspect: float | None
    controls: tuple[tuple[str, float], ...]
    line: float | None


def strip_plot(strip: Strip) -> Markup:
    """Draw a strip plot."""
    scale = _scale(strip)

    def place(value: float) -> float:
        return scale(strip.closeness(value))

    parts = [_axis(strip, scale)]
    if strip.line is not None:
        parts.append(_line(place(strip.line), strip.line))
    if strip.controls:
        parts.append(_controls(strip, place))
    if strip.suspect is not None:
        beyond = strip.closeness(strip.suspect) > scale.high
        parts.append(_suspect(place(strip.suspect), strip.suspect, beyond))
    return chart(strip.name, strip.title, strip.description, HEIGHT, *parts)


def _scale(strip: Strip) -> Scale:
    """Choose the part of the axis that is shown.

    A stolen model can lie many times farther beyond the line than the line from the innocent. The
    line then stays in the middle, and the suspect is pinned to the end with an arrow.
    """
    if strip.bounds is not None:
        low, high = (strip.closeness(value) for value in strip.bounds)
        return Scale(low, high, _LEFT, _RIGHT)
    known = [strip.closeness(value) for _, value in strip.controls]
    if strip.line is not None:
        known.append(strip.closeness(strip.line))
    known = known or [0.0]
    suspect = [] if strip.suspect is None else [strip.closeness(strip.suspect)]
    # What is farther away than unrelated models are (0) is far, however far.
    low = max(min(0.0, *known, *suspect), -0.7)
    farthest = max(max(known), 0.7)
    high = min(max(farthest, *suspect) if suspect else farthest, low + 3.0 * (farthest - low))
    padding = 0.05 * (high - low)
    return Scale(low - padding, high + padding, _LEFT, _RIGHT)


def _axis(strip: Strip, scale: Scale) -> Markup:
    def place(value: float) -> float:
        return scale(strip.closeness(value))

    candidates = list(strip.ticks)
    if not candidates and strip.bounds is not None:
        candidates = nice_ticks(min(strip.bounds), max(strip.bounds), 5)
    shown = spaced_ticks(
        candidates, place, lambda value: scale.contains(strip.closeness(value)), _TICK_DISTANCE
    )
    parts = [
        element("line", x1=_LEFT, y1=_AXIS_Y, x2=_RIGHT, y2=_AXIS_Y, stroke=FAINT),
        label(_LEFT, 140, "far", class_="quiet"),
        label(_RIGHT, 140, "closer to the owner's model →", "end", "quiet"),
    ]
    for value in shown:
        x = place(value)
        parts.append(element("line", x1=x, y1=_AXIS_Y, x2=x, y2=_AXIS_Y + 4, stroke=FAINT))
        parts.append(label(x, _AXIS_Y + 17, f"{value:g}".replace("-", "−"), "middle"))
    return joined(*parts)


def _line(x: float, value: float) -> Markup:
    return joined(
        # Tinted and edged, so that the accusing side is seen in black and white as well.
        element(
            "rect",
            x=x,
            y=18.0,
            width=max(_RIGHT - x, 0.0),
            height=_AXIS_Y - 18,
            fill=SUSPECT,
            fill_opacity="0.07",
        ),
        element(
            "line",
            x1=x,
            y1=18.0,
            x2=x,
            y2=_AXIS_Y,
            stroke=PLAIN,
            stroke_width="1.6",
            stroke_dasharray="5 3",
        ),
        label_near(x, _LINE_LABEL_Y, f"line {number(value)}"),
    )


def _suspect(x: float, value: float, beyond: bool) -> Markup:
    text = f"suspect {number(value)}{' ▸' if beyond else ''}"
    return joined(
        marks(diamond(6.0), [(x, _SUSPECT_Y)], SUSPECT, SUSPECT),
        element(
            "line", x1=x, y1=_SUSPECT_Y + 6, x2=x, y2=_AXIS_Y, stroke=SUSPECT, stroke_width="1"
        ),
        label_near(x, _SUSPECT_LABEL_Y, text, "strong"),
    )


def _controls(strip: Strip, place: Callable[[float], float]) -> Markup:
    """Stack dots that would cover each other, up to a few levels; then they do."""
    step = 2 * _DOT + 0.6
    by_place = sorted((place(value), name, value) for name, value in strip.controls)
    levels = stacked([x for x, _, _ in by_place], step, _LEVELS)
    dots = [
        (name, value, circle(_DOT)(x, _FLOOR_Y - level * step))
        for (x, name, value), level in zip(by_place, levels, strict=True)
    ]
    if len(dots) > _MOST_NAMED:
        inside = [element("path", d="".join(path for _, _, path in dots))]
    else:
        inside = [
            element("g", element("title", f"{clean(name, 60)}: {number(value)}"), _path(path))
            for name, value, path in dots
        ]
    return element("g", *inside, fill=PLAIN, fill_opacity="0.25", stroke=PLAIN)


def _path(path: str) -> Markup:
    return element("path", d=path)
