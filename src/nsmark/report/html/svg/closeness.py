"""Charts with one axis, on which right is closer to the owner's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nsmark.report.html.svg.chart import (
    FAINT,
    LINE,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    Chart,
    Kind,
    Scale,
    circle,
    diamond,
    named,
    nice_ticks,
    spaced_ticks,
    stacked,
)
from nsmark.report.html.words import number

_LEFT, _RIGHT, _TOP = 14.0, WIDTH - 14.0, 18.0
_STEP, _LEVELS, _TICK_DISTANCE = 7.0, 6, 42.0
# Shares are drawn by what is left unexplained, so the axis widens towards 1. Ends first, then the
# rest: where two labels would touch, the earlier one stays.
_SHARES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.75, 0.95, 0.25, 0.9999, -1.0, -0.5)
_FAR = ("far", "closer to the owner's model →")
_INNOCENT = Kind("innocent", circle(3.2), PLAIN, PLAIN, "0.25")
_THEFT = Kind("theft", diamond(3.6), SUSPECT, SUSPECT, "0.3")
_SUSPECT = Kind("suspect", diamond(6.0), SUSPECT, SUSPECT)
_WITH = Kind("with the trigger", diamond(5.0), SUSPECT, SUSPECT)
_WITHOUT = Kind("without", circle(4.2), PLAIN, "#fff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One statistic of innocent models, of simulated thefts or a suspect, and the line."""

    closeness: Callable[[float], float]
    """From a value to its place: larger is closer to the owner's model, drawn further right."""
    bounds: tuple[float, float] | None = None
    """Two values that the axis spans, farthest first; None: as far as the values ask."""
    innocents: Sequence[tuple[str, float]] = ()
    thefts: Sequence[tuple[str, float]] = ()
    suspect: float | None = None
    line: float | None = None

    def scale(self) -> Scale:
        """Choose the part of the axis that is shown.

        A stolen model can lie many times farther beyond the line than the line from the innocent.
        The line then stays in the middle, and what was stolen is pinned to the end.
        """
        if self.bounds is not None:
            far, near = self.bounds
            return Scale(self.closeness(far), self.closeness(near), _LEFT, _RIGHT)
        line = [] if self.line is None else [self.line]
        suspect = [] if self.suspect is None else [self.suspect]
        known = [self.closeness(value) for value in (*_values(self.innocents), *line)]
        stolen = [self.closeness(value) for value in (*_values(self.thefts), *suspect)]
        # What is farther away than unrelated models are (0) is far, however far.
        low = max(min([0.0, *known, *stolen]), -0.7)
        farthest = max([0.7, *known])
        high = min(max([farthest, *stolen]), low + 3.0 * (farthest - low))
        padding = 0.05 * (high - low)
        return Scale(low - padding, high + padding, _LEFT, _RIGHT)


def strip_plot(name: str, title: str, description: str, strip: Strip) -> Markup:
    """Draw a row of dots for innocent models, below it one for thefts; the suspect lies above."""
    scale, chart = strip.scale(), Chart(name, title, description)

    def place(value: float) -> float:
        return scale(strip.closeness(value))

    floor = 74.0 if strip.suspect is None else 96.0
    rows = [(_INNOCENT, strip.innocents, floor)]
    if strip.thefts:
        rows.append((_THEFT, strip.thefts, floor + 58))
    axis = rows[-1][2] + 9
    ticks = _SHARES if strip.bounds is None else nice_ticks(min(strip.bounds), max(strip.bounds))
    chart.line((_LEFT, axis), (_RIGHT, axis))
    chart.ends(_LEFT, _RIGHT, axis + 36, *_FAR)
    chart.ticks_below(spaced_ticks(ticks, strip.closeness, scale, _TICK_DISTANCE), place, axis)
    if strip.line is not None:
        x = place(strip.line)
        # Tinted and edged, so that the accusing side is seen in black and white as well.
        chart.add("rect", x=x, y=_TOP, width=max(_RIGHT - x, 0.0), height=axis - _TOP,
                  fill=SUSPECT, fill_opacity="0.07")  # fmt: skip
        chart.parts.append(LINE.path(f"M{x:.1f} {_TOP:g}V{axis:g}"))
        chart.label_near(x, 12, f"line {number(strip.line)}")
    for kind, models, y in rows:
        # Those that would cover each other are stacked, up to a few levels; then they do.
        drawn = sorted((place(value), model, value) for model, value in models)
        levels = stacked([x for x, _, _ in drawn], _STEP, _LEVELS)
        dots = [
            (named(model, value), (x, y - level * _STEP))
            for (x, model, value), level in zip(drawn, levels, strict=True)
        ]
        chart.named_marks(kind, dots)
    if strip.suspect is not None:
        x = place(strip.suspect)
        beyond = " ▸" if strip.closeness(strip.suspect) > scale.high else ""
        chart.marks(_SUSPECT, [(x, 43.0)])
        chart.line((x, 49), (x, axis), SUSPECT)
        chart.label_near(x, 30, f"suspect {number(strip.suspect)}{beyond}", "strong")
    return chart.svg(axis + 42)


def _values(models: Sequence[tuple[str, float]]) -> list[float]:
    return [value for _, value in models]


Pair = tuple[str, float | None, float | None]
"""A statistic, its value with the trigger, and without."""


def dumbbell_plot(
    name: str,
    title: str,
    pairs: Sequence[Pair],
    *,
    far: float,
    same: float,
    form: Callable[[float | None], str] = number,
) -> Markup:
    """Draw a row of two marks for each; ``same``, the value of the owner's model, is at the right.

    Args:
        name: Of the identifiers.
        title: For those who cannot see it.
        pairs: The rows.
        far: The value at the left.
        same: The value at the right.
        form: How values are written.
    """
    chart = Chart(
        name,
        title,
        "; ".join(f"{of}: {number(a)} with the trigger, {number(b)} without" for of, a, b in pairs),
    )
    left, right, top, row = 8.0, WIDTH - 8.0, 36.0, 40.0
    # Distances from ``far`` towards ``same``, so that right is closer whichever is larger.
    sign = 1.0 if same > far else -1.0
    scale = Scale(sign * far, sign * same, left, right)
    floor = top + row * len(pairs)
    chart.legend(10, (_WITH, 140), (_WITHOUT, 90))
    for value in nice_ticks(min(far, same), max(far, same), 5):
        x = scale(sign * value)
        chart.line((x, top - 8), (x, floor), RULE)
        chart.label_near(x, floor + 15, f"{value:g}")
    chart.line((left, floor), (right, floor))
    for number_, (of, *values) in enumerate(pairs):
        y = top + row * number_
        # A white ground, so that the lines of the axis do not cross out the words.
        chart.add("rect", x=0.0, y=y - 2, width=WIDTH, height=16.0, fill="#fff")
        chart.label(left, y + 10, of)
        chart.label(right, y + 10, " | ".join(map(form, values)), "end")
        places = [(scale(sign * value), y + 24) for value in values if value is not None]
        if len(places) == 2:
            chart.line(places[0], places[1], FAINT, stroke_width="2")
        # The one with the trigger lies on top.
        for kind, each in ((_WITHOUT, values[1]), (_WITH, values[0])):
            if each is not None:
                chart.marks(kind, [(scale(sign * each), y + 24)])
    chart.ends(left, right, floor + 33, *_FAR)
    return chart.svg(floor + 40)
