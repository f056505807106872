"""How well a statistic tells thefts from innocent models: ROC curve and margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsmark.verification.controls import Control
from nsmark.verification.statistics import STATISTICS


@dataclass(frozen=True, slots=True)
class Separation:
    """One statistic on controls and simulated thefts."""

    name: str
    area: float
    """Under the ROC curve: the chance that a theft looks closer than an innocent model."""
    closest_innocent: float
    farthest_theft: float
    curve: tuple[tuple[float, float], ...]
    """False and true accusations as the line moves, from (0, 0) to (1, 1)."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the values by name."""
        return {
            "statistic": self.name,
            "area_under_roc": self.area,
            "closest_innocent": self.closest_innocent,
            "farthest_theft": self.farthest_theft,
            "roc": [list(point) for point in self.curve],
        }


def separations(innocents: Sequence[Control], thefts: Sequence[Control]) -> list[Separation]:
    """Return how well each statistic separates, where both kinds have measured it."""
    found = []
    for statistic in STATISTICS:
        sides = [
            np.array([c for c in (statistic.of(each.triggered) for each in side) if c is not None])
            for side in (innocents, thefts)
        ]
        if len(sides[0]) and len(sides[1]):
            curve = roc_curve(*sides)
            found.append(
                Separation(
                    statistic.name,
                    area_under(curve),
                    statistic.value(float(sides[0].max())),
                    statistic.value(float(sides[1].min())),
                    curve,
                )
            )
    return found


def roc_curve(innocents: np.ndarray, thefts: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return the shares accused of either side for every place of the line, strictest first."""
    places = np.unique(np.concatenate([innocents, thefts]))[::-1]
    points = [(0.0, 0.0)]
    points += [
        (float((innocents >= place).mean()), float((thefts >= place).mean())) for place in places
    ]
    return tuple(points)


def area_under(curve: Sequence[tuple[float, float]]) -> float:
    """Return the area under a curve of points that go right and up; ties count half."""
    x, y = np.array(curve).T
    return float(np.trapezoid(y, x))
