"""The page of a calibration: what the lines of a key rest on, and what they are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsmark.report.html.document import Figure, digest, key_rows, render
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.svg.closeness import Strip, strip_plot
from nsmark.report.html.svg.planes import Point, kinship_plot, roc_plot
from nsmark.report.html.words import clean, count, finite, fixed, number, outside
from nsmark.verification.controls import CHANGED, Control
from nsmark.verification.separation import Separation
from nsmark.verification.statistics import EXTRACTION, STATISTICS, Statistic
from nsmark.verification.thresholds import (
    NEIGHBOURS,
    Calibration,
    ThresholdsByBaseline,
    thresholds_by_baseline,
    thresholds_for,
)
from nsmark.verification.verdict import Decision, Verdict

_MOST_CONTROLS = 200
_MOST_REASONS = 10
_AS_IT_IS = "answers as they are"


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
    def by_model(self) -> dict[str, list[tuple[str, bool]]]:
        """For every stolen model what was done to its answers, and whether it went free then."""
        models: dict[str, list[tuple[str, bool]]] = {}
        for theft, decision in self.judged:
            change = theft.name.partition(CHANGED)[2] or _AS_IT_IS
            models.setdefault(theft.model, []).append(
                (change, decision.verdict is not Verdict.OWNED)
            )
        return models

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


def render_calibration(facts: CalibrationFacts) -> str:
    """Return the page of a calibration; the same facts give the same bytes.

    Nothing secret is on it: neither signature nor trigger nor texts.
    """
    by_kinship = thresholds_by_baseline(facts.controls, facts.calibration)
    kinships = (
        _kinship(facts, witness, by_kinship) for witness in STATISTICS if witness is not EXTRACTION
    )
    measured = [
        witness
        for witness in STATISTICS
        if any(_value(witness, control) is not None for control in facts.controls)
    ]
    refused = Counter(next(iter(decision.reasons), "no reason") for _, decision in facts.refused)
    first, *others = key_rows(facts.key_id, facts.key, facts.versions)
    return render(
        "calibration.html",
        title=f"nsmark calibration, {clean(facts.owner, 60)}",
        facts=facts,
        neighbours=NEIGHBOURS,
        lines=_lines(facts),
        kinships=[plot for plot in kinships if plot is not None],
        apart=list(_apart(facts)),
        reasons=refused.most_common(_MOST_REASONS),
        measured=[meaning_of(witness.name).label for witness in measured],
        controls=[
            (
                outside(control.name, 80),
                [
                    "\u00a0|\u00a0".join(fixed(_value(witness, control, side)) for side in _SIDES)
                    for witness in measured
                ],
            )
            for control in facts.controls[:_MOST_CONTROLS]
        ],
        key_rows=(
            ("Key that was calibrated", digest(facts.former_key_id)),
            ("Key with the controls", first[1]),
            *others,
        ),
    )


_SIDES = ("triggered", "untriggered")


def _value(witness: Statistic, control: Control, side: str = "triggered") -> float | None:
    """Return what a model measured, where it can be drawn."""
    return finite(getattr(getattr(control, side), witness.name))


def _lines(facts: CalibrationFacts) -> list[tuple[str, list[str]]]:
    separations = {each.name: each for each in facts.separations}
    rows = []
    for line in facts.calibration.thresholds:
        apart = separations.get(line.name)
        unreachable = "" if line.can_be_reached else " Nobody can pass this line."
        values = (
            line.value,
            line.closest_control,
            apart.farthest_theft if apart else None,
            apart.area if apart else None,
        )
        rows.append((meaning_of(line.name).label + unreachable, [number(each) for each in values]))
    return rows


def _kinship(
    facts: CalibrationFacts, witness: Statistic, lines: ThresholdsByBaseline
) -> Figure | None:
    """Return why a suspect is compared with its like."""

    def points(models: Iterable[Control]) -> list[Point]:
        found = []
        for model in models:
            with_it, without = (_value(witness, model, side) for side in _SIDES)
            if with_it is not None and without is not None:
                found.append((model.name, without, with_it))
        return found

    innocents = points(facts.controls)
    found, missed = (points(theft for theft, _ in of) for of in (facts.found, facts.missed))
    if not innocents:
        return None
    label = meaning_of(witness.name).label
    caption = f"{count(len(innocents), 'innocent model')}."
    if facts.thefts:
        caption = (
            f"{count(len(innocents), 'innocent model')}, "
            f"{count(len(found) + len(missed), 'simulated theft')}. Below the line this witness "
            "is silent. A theft is found where any witness speaks and nothing speaks against the "
            "key (section 4)."
        )
    plot = kinship_plot(
        f"kinship-{witness.name.replace('_', '-')}",
        f"{label}: with the trigger over without it",
        caption,
        witness.closeness,
        (innocents, found, missed),
        lines.get(witness.name, ()),
    )
    return Figure(label, plot, caption)


def _apart(facts: CalibrationFacts) -> Iterable[Figure]:
    """Yield for every witness how far innocents and thefts lie apart, and its ROC curve."""
    separations = {each.name: each for each in facts.separations}
    for witness in STATISTICS:
        label, name = meaning_of(witness.name).label, witness.name.replace("_", "-")
        innocents, thefts = (
            [(m.name, v) for m in models if (v := _value(witness, m)) is not None]
            for models in (facts.controls, facts.thefts)
        )
        separation = separations.get(witness.name)
        if innocents:
            line = facts.calibration.threshold(witness.name)
            caption = f"Closest innocent model {number(max(value for _, value in innocents))}"
            if separation is not None:
                apart = separation.farthest_theft > separation.closest_innocent
                caption += (
                    f", farthest theft {number(separation.farthest_theft)}: "
                    f"{'a gap between them' if apart else 'they overlap'}"
                )
            strip = Strip(
                closeness=witness.closeness,
                bounds=(0.0, 1.0) if witness is EXTRACTION else None,
                innocents=innocents,
                thefts=thefts,
                line=finite(line.value) if line is not None else None,
            )
            title = f"{label}: innocent models and thefts"
            drawn = strip_plot(f"margin-{name}", title, f"{caption}.", strip)
            yield Figure(label, drawn, f"{caption}.")
        if separation is not None:
            said = f"Area under the curve (AUC): {number(separation.area)}."
            drawn = roc_plot(f"roc-{name}", f"{label}: ROC curve", said, separation.curve)
            yield Figure(f"{label}: ROC", drawn, said)
