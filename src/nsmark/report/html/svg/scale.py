"""Scales and ticks: from values to places on a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


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
    candidates: Sequence[float],
    place: Callable[[float], float],
    inside: Callable[[float], bool],
    distance: float,
) -> list[float]:
    """Return the candidates that lie inside and whose labels do not touch; earlier ones win."""
    taken: list[float] = []
    for value in candidates:
        if inside(value) and all(abs(place(value) - place(one)) >= distance for one in taken):
            taken.append(value)
    return sorted(taken)
