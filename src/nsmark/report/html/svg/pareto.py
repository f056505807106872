"""The Pareto plot: what attacks cost, against what they leave of the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsmark.report.html.markup import Markup, coordinate, element
from nsmark.report.html.svg.parts import (
    FAINT,
    OWNER,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    chart,
    circle,
    cross,
    label,
    label_near,
    legend,
    marks,
)
from nsmark.report.html.svg.scale import Scale, nice_ticks

_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 300.0, 34.0, 12.0, 22.0, 40.0


@dataclass(frozen=True, slots=True)
class Point:
    """One attack."""

    name: str
    lost: float
    """What it costs: larger is worse for the thief."""
    left: float
    """Evidence of one kind that is left: above 0 that kind shows ownership."""
    is_shown: bool


def best_for_the_thief(points: Sequence[Point]) -> list[Point]:
    """Return the attacks that no other beats: none costs less and leaves less at once."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.lost, each.left)):
        if not front or point.left < front[-1].left:
            front.append(point)
    return front


def pareto_plot(
    name: str,
    points: Sequence[Point],
    across: str,
    upwards: str,
    most_lost: float,
    most_left: float,
) -> Markup:
    """Draw attacks as points: to the right what they cost, upwards what evidence they leave.

    Args:
        name: For the identifiers of the picture.
        points: The attacks.
        across: What the horizontal axis shows.
        upwards: What the vertical axis shows.
        most_lost: Points beyond it are drawn at the edge: what is useless is useless.
        most_left: The same upwards: what is certain is certain.
    """
    lowest = min([0.0, *(point.left for point in points)])
    highest = min(most_left, max([1.0, *(point.left for point in points)]))
    x = Scale(
        min([0.0, *(max(p.lost, -most_lost) for p in points)]), most_lost, _LEFT, WIDTH - _RIGHT
    )
    y = Scale(lowest, highest, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        element(
            "line",
            x1=_LEFT,
            x2=WIDTH - _RIGHT,
            y1=y(0.0),
            y2=y(0.0),
            stroke=PLAIN,
            stroke_dasharray="4 3",
        ),
        label(WIDTH - _RIGHT, y(0.0) - 5, "this shows ownership above", "end", "small"),
        label(0, 12, upwards, class_="small"),
        label_near(WIDTH / 2, _HEIGHT - 6, across, "small"),
    ]
    for tick in nice_ticks(x.low, x.high):
        parts.append(label_near(x(tick), _HEIGHT - _BOTTOM + 16, f"{tick:g}", "small"))
    for tick in nice_ticks(y.low, y.high, 5):
        parts.append(label(_LEFT - 6, y(tick) + 4, f"{tick:g}", "end", "small"))
    frame = element(
        "rect",
        x=_LEFT,
        y=_TOP,
        width=WIDTH - _LEFT - _RIGHT,
        height=_HEIGHT - _TOP - _BOTTOM,
        fill="none",
        stroke=RULE,
    )
    front = best_for_the_thief(points)
    if len(front) > 1:
        path = "".join(
            f"{'L' if number else 'M'}{coordinate(x(p.lost))} {coordinate(y(p.left))}"
            for number, p in enumerate(front)
        )
        parts.append(element("path", d=path, fill="none", stroke=FAINT, stroke_width="1"))
    kinds = (
        ("ownership shown", circle(3.4), OWNER, [p for p in points if p.is_shown]),
        ("not shown", cross(3.2), SUSPECT, [p for p in points if not p.is_shown]),
    )
    drawn = [
        marks(mark, [(x(p.lost), y(p.left)) for p in chosen], stroke)
        for _, mark, stroke, chosen in kinds
        if chosen
    ]
    entries = legend(
        _HEIGHT + 12,
        [(marks(mark, [(8, 0)], stroke), text, 150.0) for text, mark, stroke, _ in kinds],
    )
    worst = min(points, key=lambda point: point.left, default=None)
    description = (
        f"{len(points)} attacks; ownership is shown after {sum(p.is_shown for p in points)}"
    )
    if worst is not None:
        description += f"; least evidence is left by {worst.name}"
    return chart(
        name,
        f"{across} against {upwards}",
        description,
        _HEIGHT + 24,
        frame,
        *parts,
        *drawn,
        entries,
    )
