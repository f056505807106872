"""What all charts share: the frame with its text alternative, marks, labels that stay inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from nsmark.report.html.markup import Markup, coordinate, element, joined

WIDTH = 380.0
"""Near the width of a phone and of half a page, so that text keeps its size on both."""

# Okabe and Ito's blue and vermilion differ to every eye; shapes differ too, for black and white.
OWNER = "#0072b2"
SUSPECT = "#c04a00"
PLAIN = "#4a4f57"
FAINT = "#8a9099"
RULE = "#c9ced6"

Mark = Callable[[float, float], str]


def chart(name: str, title: str, description: str, height: float, *parts: str) -> Markup:
    """Return an SVG picture with a title and a description for those who cannot see it."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
        class_="chart",
        viewBox=f"0 0 {coordinate(WIDTH)} {coordinate(height)}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def label(
    x: float, y: float, text: str, anchor: str = "start", class_: str | None = None
) -> Markup:
    """Return a line of text."""
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def label_near(x: float, y: float, text: str, class_: str | None = None) -> Markup:
    """Return a line of text centred on a place, or turned inwards where it would leave the chart.

    How wide a text gets is not known without a browser: 6.4 pixels a character is what common
    sans-serif fonts need at this size, with something to spare.
    """
    half = 3.2 * len(text)
    anchor = "start" if x < half else "end" if x > WIDTH - half else "middle"
    return label(x, y, text, anchor, class_)


def circle(radius: float) -> Mark:
    """Return the outline of a circle, to be drawn in one path with others."""
    r, d = coordinate(radius), coordinate(2 * radius)
    return lambda x, y: (
        f"M{coordinate(x - radius)} {coordinate(y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0"
    )


def diamond(radius: float) -> Mark:
    """Return the outline of a diamond."""
    r = coordinate(radius)
    return lambda x, y: f"M{coordinate(x - radius)} {coordinate(y)}l{r}-{r}l{r} {r}l-{r} {r}z"


def square(radius: float) -> Mark:
    """Return the outline of a square."""
    d = coordinate(2 * radius)
    return lambda x, y: f"M{coordinate(x - radius)} {coordinate(y - radius)}h{d}v{d}h-{d}z"


def cross(radius: float) -> Mark:
    """Return a cross of two slanting lines."""
    d = coordinate(2 * radius)
    return lambda x, y: f"M{coordinate(x - radius)} {coordinate(y - radius)}l{d} {d}m0-{d}l-{d} {d}"


def marks(
    mark: Mark, places: Iterable[tuple[float, float]], stroke: str, fill: str = "none"
) -> Markup:
    """Return many marks as one path."""
    return element(
        "path",
        d="".join(mark(x, y) for x, y in places),
        stroke=stroke,
        fill=fill,
        stroke_width="1.4",
    )


def legend(y: float, entries: Iterable[tuple[Markup, str, float]]) -> Markup:
    """Return marks with their names; each mark is drawn at (8, 0), each entry has its width."""
    parts, x = [], 0.0
    for mark, text, width in entries:
        parts.append(
            element(
                "g",
                mark,
                label(18, 4, text),
                transform=f"translate({coordinate(x)} {coordinate(y)})",
            )
        )
        x += width
    return joined(*parts)


def stacked(places: Sequence[float], step: float, levels: int) -> list[int]:
    """Return a level for each of some places in rising order, so that marks do not touch."""
    reached = [-math.inf] * levels
    chosen = []
    for x in places:
        free = (level for level in range(levels) if x - reached[level] >= step)
        # With no room left, the level whose last mark is farthest away.
        level = next(free, reached.index(min(reached)))
        reached[level] = x
        chosen.append(level)
    return chosen
