"""Lines of a rule as strip plots with their captions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nsmark.keyfile.document import Thresholds
from nsmark.report.html.facts import Facts
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.svg.scale import nice_ticks
from nsmark.report.html.svg.strip import Strip
from nsmark.report.html.words import finite, number
from nsmark.verification.statistics import STATISTICS
from nsmark.verification.thresholds import Calibration, Threshold
from nsmark.verification.verdict import Verdict

# Shares are drawn by what is left unexplained, so the axis widens towards 1. Ends first, then the
# rest: where two labels would touch, the earlier one stays.
SHARE_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.75, 0.95, 0.25, 0.9999, -1.0, -0.5)


@dataclass(frozen=True, slots=True)
class Lines:
    """One plot and its words."""

    heading: str
    strip: Strip
    caption: str


def calibrated_lines(facts: Facts, calibration: Calibration) -> list[Lines]:
    """Return a plot for every witness that has a line."""
    found = []
    for witness in STATISTICS:
        line = calibration.threshold(witness.name)
        if line is None:
            continue
        is_rate = witness.name == "extraction_rate"
        found.append(
            _lines(
                facts,
                "calibrated",
                witness.name,
                line.value,
                closeness=witness.closeness,
                ticks=() if is_rate else SHARE_TICKS,
                bounds=(0.0, 1.0) if is_rate else None,
                line=line,
            )
        )
    return found


def paper_lines(facts: Facts, thresholds: Thresholds) -> list[Lines]:
    """Return the two plots of the paper's rule."""
    name = "invariant_matching_degree"
    degrees = [thresholds.max_matching_degree, *(value for _, value in _controls(facts, name))]
    measured = finite(facts.triggered.get(name))
    degrees += [] if measured is None else [measured]
    farthest = max(1.0, 1.1 * max(degree for degree in degrees if math.isfinite(degree)))
    return [
        _lines(
            facts,
            "paper",
            "extraction_rate",
            thresholds.min_extraction_rate,
            closeness=float,
            bounds=(0.0, 1.0),
        ),
        _lines(
            facts,
            "paper",
            name,
            thresholds.max_matching_degree,
            closeness=lambda value: -value,
            ticks=tuple(nice_ticks(0.0, farthest, 6)),
            bounds=(farthest, 0.0),
        ),
    ]


def _lines(
    facts: Facts,
    rule: str,
    name: str,
    threshold: float,
    *,
    closeness: Callable[[float], float],
    ticks: tuple[float, ...] = (),
    bounds: tuple[float, float] | None = None,
    line: Threshold | None = None,
) -> Lines:
    values = facts.counted if rule == "calibrated" else facts.triggered
    suspect, controls = finite(values.get(name)), _controls(facts, name)
    at_size = (
        ", at the size of the owner's outputs,"
        if values.get(name) != facts.triggered.get(name)
        else ""
    )
    label = meaning_of(name).label
    passed = suspect is not None and closeness(suspect) > closeness(threshold)
    closest: float | None = line.closest_control if line is not None else None
    num_models = line.num_controls if line is not None else len(controls)
    if closest is None and controls:
        closest = max((value for _, value in controls), key=closeness)
    sentences = [
        "The suspect's value could not be had."
        if suspect is None
        else f"The suspect's {number(suspect)}{at_size} "
        f"{'lies beyond' if passed else 'does not reach beyond'} the line at {number(threshold)}: "
        f"this witness {_says(facts, passed)}."
    ]
    if closest is None:
        sentences.append("The innocent models behind the line are not recorded in this report.")
    else:
        who = (
            f"closest of {num_models:,} innocent models"
            if num_models > 1
            else "only innocent model"
        )
        sentences.append(f"The {who} has {number(closest)}.")
        if not controls:
            sentences.append("Their single values are not recorded in this report.")
    if line is not None and not line.can_be_reached:
        sentences.append("Not even the owner's own model could pass this line.")
    caption = " ".join(sentences)
    strip = Strip(
        name=f"strip-{rule}-{name.replace('_', '-')}",
        title=f"{label}: suspect, line and innocent models",
        description=caption,
        closeness=closeness,
        ticks=ticks,
        bounds=bounds,
        suspect=suspect,
        controls=controls,
        line=finite(threshold),
    )
    return Lines(label, strip, caption)


def _says(facts: Facts, passed: bool) -> str:
    if not passed:
        return "does not accuse"
    # A key can be refused for its own sake; then a witness beyond its line changes nothing.
    return "accuses" if facts.report.verdict is Verdict.OWNED else "by itself would accuse"


def _controls(facts: Facts, name: str) -> tuple[tuple[str, float], ...]:
    found = ((control.name, finite(getattr(control.triggered, name))) for control in facts.controls)
    return tuple((control, value) for control, value in found if value is not None)
