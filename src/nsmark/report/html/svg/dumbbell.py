"""The dumbbell plot: each statistic with the trigger and without it, on one axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.svg.parts import (
    FAINT,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    chart,
    circle,
    diamond,
    label,
    legend,
    marks,
)
from nsmark.report.html.svg.scale import Scale, nice_ticks
from nsmark.report.html.words import number

_LEFT, _RIGHT = 8.0, WIDTH - 8.0
_TOP, _ROW = 36.0, 40.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One row."""

    label: str
    triggered: float | None
    untriggered: float | None


def dumbbell_plot(
    name: str,
    title: str,
    pairs: list[Pair],
    *,
    far: float,
    same: float,
    form: Callable[[float | None], str] = number,
) -> Markup:
    """Draw rows of two marks; ``same``, the value of the owner's own model, is at the right."""
    # Distances from ``far`` towards ``same``, so that right is closer whichever is larger.
    sign = 1.0 if same > far else -1.0
    scale = Scale(sign * far, sign * same, _LEFT, _RIGHT)
    floor = _TOP + _ROW * len(pairs)
    parts = [
        legend(
            10,
            (
                (marks(diamond(5.0), [(8, 0)], SUSPECT, SUSPECT), "with the trigger", 140),
                (marks(circle(4.2), [(8, 0)], PLAIN, "#fff"), "without", 90),
            ),
        )
    ]
    for value in nice_ticks(min(far, same), max(far, same), 5):
        x = scale(sign * value)
        anchor = "start" if x < 20 else "end" if x > WIDTH - 20 else "middle"
        parts.append(element("line", x1=x, y1=_TOP - 8, x2=x, y2=floor, stroke=RULE))
        parts.append(label(x, floor + 15, f"{value:g}", anchor))
    parts.append(element("line", x1=_LEFT, y1=floor, x2=_RIGHT, y2=floor, stroke=FAINT))
    parts += [_row(pair, _TOP + _ROW * i, scale, sign, form) for i, pair in enumerate(pairs)]
    parts.append(label(_LEFT, floor + 33, "far", class_="quiet"))
    parts.append(label(_RIGHT, floor + 33, "closer to the owner's model →", "end", "quiet"))
    description = "; ".join(
        f"{pair.label}: {number(pair.triggered)} with the trigger, "
        f"{number(pair.untriggered)} without"
        for pair in pairs
    )
    return chart(name, title, description, floor + 40, *parts)


def _row(
    pair: Pair, top: float, scale: Scale, sign: float, form: Callable[[float | None], str]
) -> Markup:
    y = top + 24
    parts = [
        # A white ground, so that the lines of the axis do not cross out the words.
        element("rect", x=0.0, y=top - 2, width=WIDTH, height=16.0, fill="#fff"),
        label(_LEFT, top + 10, pair.label),
        label(_RIGHT, top + 10, f"{form(pair.triggered)} | {form(pair.untriggered)}", "end"),
    ]
    places = [
        None if value is None else scale(sign * value)
        for value in (pair.triggered, pair.untriggered)
    ]
    triggered, untriggered = places
    if triggered is not None and untriggered is not None:
        parts.append(
            element(
                "line", x1=triggered, y1=y, x2=untriggered, y2=y, stroke=FAINT, stroke_width="2"
            )
        )
    if untriggered is not None:
        parts.append(marks(circle(4.2), [(untriggered, y)], PLAIN, "#fff"))
    if triggered is not None:
        parts.append(marks(diamond(5.0), [(triggered, y)], SUSPECT, SUSPECT))
    return joined(*parts)
