"""What the page of a calibration is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsmark.report.html.words import finite
from nsmark.verification.controls import Control
from nsmark.verification.separation import Separation
from nsmark.verification.statistics import Statistic
from nsmark.verification.thresholds import Calibration, thresholds_for
from nsmark.verification.verdict import Decision, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFacts:
    """A calibration as plain data; nothing of it is secret."""

    owner: str
    calibration: Calibration
    controls: Sequence[Control]
    """The innocent models that the lines were drawn from."""
    num_cut: int = 0
    """Further measurements of lower rank in the key, for suspects whose answers were cut."""
    thefts: Sequence[Control] = ()
    decisions: Sequence[Decision] = ()
    """What a verifier would say of each theft."""
    separations: Sequence[Separation] = ()
    not_made: Sequence[str] = ()
    """Controls that were asked for and could not be made, with the reason."""
    key_id: str = ""
    former_key_id: str = ""
    """Of the key that was calibrated; the new one holds the controls."""
    key: Mapping[str, Any] = field(default_factory=dict)
    """What the key says of itself in public; only names that the page knows are read."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    command: str = ""

    @property
    def judged(self) -> list[tuple[Control, Decision]]:
        """The thefts with what would be said of them."""
        return list(zip(self.thefts, self.decisions, strict=True))

    @property
    def missed(self) -> list[tuple[Control, Decision]]:
        """The thefts that would go free."""
        return [pair for pair in self.judged if pair[1].verdict is not Verdict.OWNED]

    @property
    def found(self) -> list[tuple[Control, Decision]]:
        """The thefts that would not."""
        return [pair for pair in self.judged if pair[1].verdict is Verdict.OWNED]

    @property
    def refused(self) -> list[tuple[Control, Decision]]:
        """The missed thefts that lie beyond a line all the same: something else let them go."""
        return [
            (theft, decision)
            for theft, decision in self.missed
            if any(
                line.passed_by(theft.triggered)
                for line in thresholds_for(self.calibration, self.controls, theft.untriggered)
            )
        ]


def value_of(witness: Statistic, control: Control, *, triggered: bool = True) -> float | None:
    """Return what a model measured, where it can be drawn."""
    statistics = control.triggered if triggered else control.untriggered
    return finite(getattr(statistics, witness.name))
