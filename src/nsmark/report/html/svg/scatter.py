"""The scatter plot: answers as points in a plane, one mark for each kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.report.html.markup import Markup, element
from nsmark.report.html.svg.parts import (
    OWNER,
    PLAIN,
    RULE,
    SUSPECT,
    WIDTH,
    Mark,
    chart,
    circle,
    cross,
    diamond,
    legend,
    marks,
)

_SIDE, _MARGIN = 320.0, 14.0

# Drawn in this order; the owner's ring stays visible around a suspect's point that covers it.
KINDS: dict[str, tuple[str, Mark, str, str]] = {
    "suspect untriggered": ("suspect, without the trigger", cross(2.6), PLAIN, "none"),
    "owner triggered": ("owner, with the trigger", circle(4.4), OWNER, "none"),
    "suspect triggered": ("suspect, with the trigger", diamond(2.6), SUSPECT, SUSPECT),
}


def scatter_plot(name: str, title: str, points: dict[str, NDArray[np.float64]]) -> Markup:
    """Draw groups of points, shape (count, 2) each, with the same scale on both axes."""
    together = np.concatenate(list(points.values()))
    low, high = together.min(axis=0), together.max(axis=0)
    centre = (low + high) / 2
    room = np.array([WIDTH, _SIDE]) - 2 * _MARGIN
    # One factor for both axes: as much as fits, so that no direction is stretched.
    extent = high - low
    factor = float((room[extent > 0] / extent[extent > 0]).min(initial=np.finfo(np.float32).max))
    places = {
        kind: (group - centre) * factor + np.array([WIDTH, _SIDE]) / 2
        for kind, group in points.items()
    }
    drawn = [
        marks(mark, ((float(x), float(y)) for x, y in places[kind]), stroke, fill)
        for kind, (_, mark, stroke, fill) in KINDS.items()
        if kind in places
    ]
    entries = [
        legend(_SIDE + 16 + 19 * i, [(marks(mark, [(8, 0)], stroke, fill), text, WIDTH)])
        for i, (text, mark, stroke, fill) in enumerate(
            KINDS[kind] for kind in KINDS if kind in points
        )
    ]
    description = "Points: " + ", ".join(
        f"{len(group)} of {KINDS[kind][0]}" for kind, group in points.items()
    )
    frame = element(
        "rect", x=0.5, y=0.5, width=WIDTH - 1, height=_SIDE - 1, fill="none", stroke=RULE
    )
    return chart(name, title, description, _SIDE + 12 + 19 * len(entries), frame, *drawn, *entries)
