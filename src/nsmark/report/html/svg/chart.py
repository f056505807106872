"""The one helper of all charts: scales, ticks, marks, labels, a legend, and words for the blind.

Shapes differ as well as colours, so that every chart can be read in black and white.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nsmark.report.html.markup import coordinate, element
from nsmark.report.html.words import clean, number

WIDTH = 380.0
"""Near the width of a phone and of half a page, so that text keeps its size on both."""

# Okabe and Ito's blue and vermilion differ to every eye.
OWNER, SUSPECT = "#0072b2", "#c04a00"
PLAIN, FAINT, RULE = "#4a4f57", "#8a9099", "#c9ced6"
# Names on so many marks would make a page megabytes long, and nobody could point at one.
_MOST_NAMED = 300

Place = tuple[float, float]
Mark = Callable[[float, float], str]
"""From the middle of a mark to its outline, to be drawn in one path with others."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to pixels; values outside are pinned to the nearer end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def contains(self, value: float) -> bool:
        """Return whether a value is drawn where it is, and not pinned to an end."""
        return self.low <= value <= self.high


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values between two others: steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low or most < 1:
        return []
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Multiples, not sums: adding 0.1 ten times does not give 1.
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def spaced_ticks(
    candidates: Iterable[float], order: Callable[[float], float], scale: Scale, distance: float
) -> list[float]:
    """Return the candidates on a scale whose labels do not touch; earlier ones win.

    Args:
        candidates: Values, the most wanted first.
        order: From a value to what the scale takes.
        scale: Of the axis.
        distance: Pixels from one label to the next.
    """
    taken: list[float] = []
    for value in candidates:
        place = scale(order(value))
        if scale.contains(order(value)) and all(
            abs(place - scale(order(one))) >= distance for one in taken
        ):
            taken.append(value)
    return sorted(taken)


def circle(radius: float) -> Mark:
    """Return the outline of a circle."""
    r, d = coordinate(radius), coordinate(2 * radius)
    return lambda x, y: f"M{_at(x - radius, y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0"


def diamond(radius: float) -> Mark:
    """Return the outline of a diamond."""
    r = coordinate(radius)
    return lambda x, y: f"M{_at(x - radius, y)}l{r}-{r}l{r} {r}l-{r} {r}z"


def square(radius: float) -> Mark:
    """Return the outline of a square."""
    d = coordinate(2 * radius)
    return lambda x, y: f"M{_at(x - radius, y - radius)}h{d}v{d}h-{d}z"


def cross(radius: float) -> Mark:
    """Return a cross of two slanting lines."""
    d = coordinate(2 * radius)
    return lambda x, y: f"M{_at(x - radius, y - radius)}l{d} {d}m0-{d}l-{d} {d}"


def stroke(x: float, y: float) -> str:
    """Return a piece of a line, for legends."""
    return f"M{_at(x - 8, y)}h15"


def polyline(places: Iterable[Place]) -> str:
    """Return the outline of straight lines from place to place."""
    return "".join(f"{'L' if i else 'M'}{_at(*place)}" for i, place in enumerate(places))


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of thing is drawn, and what it is called in the legend."""

    text: str
    mark: Mark
    colour: str
    fill: str = "none"
    opacity: str | None = None
    """Of the filling: where many marks lie over each other, they must shine through."""
    dashes: str | None = None
    width: str = "1.4"

    def path(self, outline: str) -> Markup:
        """Return an outline drawn in this way."""
        return element(
            "path",
            d=outline,
            stroke=self.colour,
            fill=self.fill,
            fill_opacity=self.opacity,
            stroke_dasharray=self.dashes,
            stroke_width=self.width,
        )


LINE = Kind("accuses above", stroke, PLAIN, dashes="5 3", width="1.6")
"""Where a witness begins to accuse."""


class Chart:
    """A picture that is being drawn, from top to bottom, what comes later over what came before."""

    def __init__(self, name: str, title: str, description: str) -> None:
        """Begin a picture.

        Args:
            name: Of its identifiers on the page.
            title: What it is, for those who cannot see it.
            description: What it shows, for them.
        """
        self.name, self.title, self.description = name, title, description
        self.parts: list[Markup] = []

    def svg(self, height: float) -> Markup:
        """Return the picture."""
        return element(
            "svg",
            element("title", self.title, id=f"{self.name}-title"),
            element("desc", self.description, id=f"{self.name}-desc"),
            *self.parts,
            class_="chart",
            viewBox=f"0 0 {coordinate(WIDTH)} {coordinate(height)}",
            role="img",
            aria_labelledby=f"{self.name}-title {self.name}-desc",
        )

    def add(self, tag: str, *children: str, **attributes: str | float | None) -> None:
        """Draw an element."""
        self.parts.append(element(tag, *children, **attributes))

    def line(self, start: Place, end: Place, colour: str = FAINT, **style: str) -> None:
        """Draw a straight line."""
        (x1, y1), (x2, y2) = start, end
        self.add("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), stroke=colour,
                 **style)  # fmt: skip

    def frame(self, left: float, top: float, right: float, floor: float) -> None:
        """Draw a thin frame."""
        self.add("rect", x=left, y=top, width=right - left, height=floor - top, fill="none",
                 stroke=RULE)  # fmt: skip

    def label(
        self, x: float, y: float, text: str, anchor: str = "start", class_: str | None = None
    ) -> None:
        """Write a line of text."""
        self.add("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_)

    def label_near(self, x: float, y: float, text: str, class_: str | None = None) -> None:
        """Write a line of text centred on a place, or turned inwards at the edges.

        How wide a text gets is not known without a browser: 6.4 pixels a character is what common
        sans-serif fonts need at this size, with something to spare.
        """
        half = 3.2 * len(text)
        anchor = "start" if x < half else "end" if x > WIDTH - half else "middle"
        self.label(x, y, text, anchor, class_)

    def ends(self, left: float, right: float, y: float, *texts: str) -> None:
        """Write below an axis what its ends mean."""
        self.label(left, y, texts[0], class_="quiet")
        self.label(right, y, texts[1], "end", "quiet")

    def ticks_below(
        self, ticks: Iterable[float], place: Callable[[float], float], y: float
    ) -> None:
        """Write values below an axis."""
        for value in ticks:
            x = place(value)
            self.line((x, y), (x, y + 4))
            self.label_near(x, y + 17, f"{value:g}".replace("-", "−"))

    def marks(self, kind: Kind, places: Iterable[Place]) -> None:
        """Draw marks as one path."""
        self.parts.append(kind.path("".join(kind.mark(x, y) for x, y in places)))

    def named_marks(self, kind: Kind, named: Sequence[tuple[str, Place]]) -> None:
        """Draw marks that tell their names to whoever points at them."""
        if len(named) > _MOST_NAMED:
            return self.marks(kind, (place for _, place in named))
        style = {"stroke": kind.colour, "fill": kind.fill, "fill_opacity": kind.opacity}
        marks = (
            element("g", element("title", name), element("path", d=kind.mark(*place)))
            for name, place in named
        )
        self.add("g", *marks, **style)
        return None

    def legend(self, y: float, *entries: tuple[Kind, float]) -> None:
        """Draw kinds beside their names in a row; each takes as much room as is said."""
        x = 0.0
        for kind, width in entries:
            inside = kind.path(kind.mark(8, 0)), element("text", kind.text, x=18.0, y=4.0)
            self.add("g", *inside, transform=f"translate({_at(x, y)})")
            x += width

    def legend_below(self, y: float, kinds: Sequence[Kind]) -> float:
        """Draw kinds below each other; return the height that the picture then has."""
        for i, kind in enumerate(kinds):
            self.legend(y + 16 + 19 * i, (kind, WIDTH))
        return y + 10 + 19 * len(kinds)


def named(name: str, value: float, further: str = "") -> str:
    """Return what a mark says of itself to whoever points at it."""
    return f"{clean(name, 60)}: {number(value)}{further}"


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


def _at(x: float, y: float) -> str:
    return f"{coordinate(x)} {coordinate(y)}"
