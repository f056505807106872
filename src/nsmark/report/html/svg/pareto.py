"""The Pareto plot: what attacks cost, against what they leave of the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nsmark.report.html.svg.chart import (
    FAINT,
    OWNER,
    PLAIN,
    SUSPECT,
    WIDTH,
    Chart,
    Kind,
    Scale,
    circle,
    cross,
    nice_ticks,
    polyline,
)

_LEFT, _RIGHT, _TOP, _FLOOR = 34.0, WIDTH - 12.0, 22.0, 260.0
_SHOWN = Kind("ownership shown", circle(3.4), OWNER)
_NOT_SHOWN = Kind("not shown", cross(3.2), SUSPECT)


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
    said = f"{len(points)} attacks; ownership is shown after {sum(p.is_shown for p in points)}"
    if points:
        said += f"; least evidence is left by {min(points, key=lambda p: p.left).name}"
    chart = Chart(name, f"{across} against {upwards}", said)
    lost, left = [point.lost for point in points], [point.left for point in points]
    x = Scale(max(min([0.0, *lost]), -most_lost), most_lost, _LEFT, _RIGHT)
    y = Scale(min([0.0, *left]), min(most_left, max([1.0, *left])), _FLOOR, _TOP)
    chart.frame(_LEFT, _TOP, _RIGHT, _FLOOR)
    chart.line((_LEFT, y(0.0)), (_RIGHT, y(0.0)), PLAIN, stroke_dasharray="4 3")
    chart.label(_RIGHT, y(0.0) - 5, "this shows ownership above", "end", "small")
    chart.label(0, 12, upwards, class_="small")
    chart.label_near(WIDTH / 2, _FLOOR + 34, across, "small")
    for tick in nice_ticks(x.low, x.high):
        chart.label_near(x(tick), _FLOOR + 16, f"{tick:g}", "small")
    for tick in nice_ticks(y.low, y.high, 5):
        chart.label(_LEFT - 6, y(tick) + 4, f"{tick:g}", "end", "small")
    front = [(x(point.lost), y(point.left)) for point in best_for_the_thief(points)]
    if len(front) > 1:
        chart.add("path", d=polyline(front), fill="none", stroke=FAINT, stroke_width="1")
    for kind, is_shown in ((_SHOWN, True), (_NOT_SHOWN, False)):
        chart.marks(kind, [(x(p.lost), y(p.left)) for p in points if p.is_shown is is_shown])
    chart.legend(_FLOOR + 52, (_SHOWN, 150), (_NOT_SHOWN, 150))
    return chart.svg(_FLOOR + 64)
