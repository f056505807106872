"""One innocent model under a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsmark.verification.measure import Evidence, Statistics

CHANGED = " | "
"""Stands in a control's name between the model and what was done to its outputs."""


@dataclass(frozen=True, slots=True)
class Control:
    """What one innocent model measured, as it is or after a change of its outputs."""

    name: str
    triggered: Statistics
    rank: int | None = None
    """Dimensions in which its outputs vary; None where it was not recorded."""
    untriggered: Statistics = field(default_factory=Statistics)
    """On the same texts without the trigger: how much it is like the owner's model anyway."""

    @property
    def model(self) -> str:
        """The model, without what was done to its outputs."""
        return self.name.partition(CHANGED)[0]


def control_of(evidence: Evidence, name: str | None = None) -> Control:
    """Return a measured model as a control."""
    name = evidence.suspect if name is None else name
    return Control(name, evidence.counted, evidence.rank, evidence.untriggered)
