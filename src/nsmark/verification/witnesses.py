"""The witnesses: statistics that may accuse, and the line from where on one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nsmark.verification.measure import Statistics

_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Witness:
    """A statistic that may accuse."""

    name: str
    label: str
    closeness: Callable[[float], float]
    """How close the suspect is to the owner's model, larger is closer."""
    value: Callable[[float], float]
    """The inverse of ``closeness``."""

    def of(self, statistics: Statistics) -> float | None:
        """Return the closeness a model shows, None where it could not be had."""
        found: float | None = getattr(statistics, self.name)
        return None if found is None else self.closeness(found)


def _share(name: str, label: str) -> Witness:
    return Witness(
        name,
        label,
        lambda value: -float(np.log(max(1 - value, _TINY))),
        lambda closeness: 1 - float(np.exp(-closeness)),
    )


EXTRACTION = Witness("extraction_rate", "extraction rate", float, float)
WITNESSES: tuple[Witness, ...] = (
    EXTRACTION,
    _share("predictability", "predictability"),
    _share("aligned_predictability", "predictability up to a scale per text"),
    _share("aligned_subspace_overlap", "subspace overlap up to a scale per text"),
)
"""Few, since each costs some of the error rate. Matching degrees are not among them: nearly
constant outputs of any model lie close by those. Overlap and gap say no more than what is here."""


@dataclass(frozen=True, slots=True)
class Line:
    """Where one witness begins to accuse."""

    name: str
    threshold: float
    closest_control: float
    num_controls: int

    @property
    def can_be_reached(self) -> bool:
        """Whether the owner's own model lies beyond it."""
        witness = _BY_NAME[self.name]
        return witness.closeness(self.threshold) < witness.closeness(1.0)

    def passed_by(self, statistics: Statistics) -> bool:
        """Return whether a model with these statistics lies beyond the line."""
        margin = self.margin(statistics)
        return margin is not None and margin > 0

    def margin(self, statistics: Statistics) -> float | None:
        """Return how much closer than the line a model is; None if it was not measured."""
        witness = _BY_NAME[self.name]
        closeness = witness.of(statistics)
        return None if closeness is None else closeness - witness.closeness(self.threshold)


_BY_NAME = {witness.name: witness for witness in WITNESSES}
