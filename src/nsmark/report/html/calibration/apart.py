"""Innocent models and simulated thefts: kinship, margins and ROC curves."""

from __future__ import annotations

from collections.abc import Iterable

from nsmark.report.html.blocks import figure, paragraph, section
from nsmark.report.html.calibration.facts import CalibrationFacts, value_of
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.sections.strips import SHARE_TICKS
from nsmark.report.html.svg.kinship import Kinship, Point, kinship_plot
from nsmark.report.html.svg.margin import Margin, margin_plot
from nsmark.report.html.svg.roc import roc_plot
from nsmark.report.html.words import count, finite, number
from nsmark.verification.controls import Control
from nsmark.verification.separation import Separation
from nsmark.verification.statistics import EXTRACTION, STATISTICS, Statistic
from nsmark.verification.thresholds import NEIGHBOURS, ThresholdsByBaseline, thresholds_by_baseline

_RATE_TICKS = (0.0, 1.0, 0.5, 0.25, 0.75)


def kinship_section(facts: CalibrationFacts) -> Markup:
    """Return the plots that show why a suspect is compared with its like."""
    lines = thresholds_by_baseline(facts.controls, facts.calibration)
    plots = [
        plot
        for witness in STATISTICS
        if witness is not EXTRACTION
        for plot in _kinship(facts, witness, lines)
    ]
    return section(
        2,
        "Why a suspect is compared with its like",
        paragraph(
            "Each mark is a model. To the right lie those whose answers to ordinary texts, without "
            "the trigger, are like those of the owner's model: its kin. High up lie those that are "
            "like it when the trigger is there. Whoever took the marked model is about as close "
            "with the trigger as without it, and lies near the dotted diagonal. An innocent "
            "relative of the same kinship, such as the public model that both were made from, lies "
            "far below."
        ),
        paragraph(
            "So a line for all models alike would be needlessly high for some. The dashed line is "
            f"drawn at every kinship from the {NEIGHBOURS} innocent models nearest to it, and "
            "never below the highest of all."
            if facts.calibration.num_models > NEIGHBOURS
            else f"With no more than {NEIGHBOURS} innocent models all of them make the line, "
            "whatever the kinship."
        ),
        element("div", *plots, class_="side-by-side")
        if plots
        else paragraph("Nothing was measured that could be drawn."),
    )


def _kinship(
    facts: CalibrationFacts, witness: Statistic, lines: ThresholdsByBaseline
) -> list[Markup]:
    innocents = _points(witness, facts.controls)
    if not innocents:
        return []
    found = _points(witness, (theft for theft, _ in facts.found))
    missed = _points(witness, (theft for theft, _ in facts.missed))
    label = meaning_of(witness.name).label
    caption = f"{count(len(innocents), 'innocent model')}"
    if facts.thefts:
        caption += (
            f", {count(len(found) + len(missed), 'simulated theft')}. Below the line this witness "
            "is silent. A theft is found where any witness speaks and nothing speaks against the "
            "key (section 4)."
        )
    else:
        caption += "."
    plot = kinship_plot(
        Kinship(
            name=f"kinship-{witness.name.replace('_', '-')}",
            title=f"{label}: with the trigger over without it",
            description=caption,
            closeness=witness.closeness,
            innocents=innocents,
            found=found,
            missed=missed,
            line=lines.get(witness.name, ()),
        )
    )
    return [figure(label, plot, caption)]


def _points(witness: Statistic, models: Iterable[Control]) -> list[Point]:
    found = []
    for model in models:
        without, with_it = (value_of(witness, model, triggered=side) for side in (False, True))
        if with_it is not None and without is not None:
            found.append((model.name, without, with_it))
    return found


def apart_section(facts: CalibrationFacts) -> Markup:
    """Return for every witness how far innocents and thefts lie apart, and its ROC curve."""
    separations = {each.name: each for each in facts.separations}
    content: list[str] = []
    for witness in STATISTICS:
        margin = _margin(facts, witness, separations.get(witness.name))
        if margin is not None:
            content.append(margin)
        if witness.name in separations:
            content.append(_roc(separations[witness.name]))
    return section(
        3,
        "How well each witness tells them apart",
        paragraph(
            "The first picture of each witness: innocent models (dots) above simulated thefts "
            "(diamonds), each at its value on triggered texts; those at the right edge lie there "
            "or beyond. The dashed line is the one drawn from all controls. The second picture: "
            "the share of thefts found over the share of innocent models accused, for every place "
            "the line could have. The area under that curve is the chance that a theft looks "
            "closer than an innocent model: 1 is perfect, one half is guessing."
            if facts.separations
            else "Innocent models, each at its value on triggered texts. No theft was simulated, "
            "so there is nothing to tell them from: give the marked model with --owner-model."
        ),
        element("div", *content, class_="side-by-side"),
    )


def _margin(
    facts: CalibrationFacts, witness: Statistic, separation: Separation | None
) -> Markup | None:
    innocents, thefts = (
        [(m.name, v) for m in models if (v := value_of(witness, m)) is not None]
        for models in (facts.controls, facts.thefts)
    )
    if not innocents:
        return None
    label = meaning_of(witness.name).label
    line = facts.calibration.threshold(witness.name)
    threshold = finite(line.value) if line is not None else None
    closest = max(value for _, value in innocents)
    caption = f"Closest innocent model {number(closest)}"
    if separation is not None:
        apart = separation.farthest_theft > separation.closest_innocent
        caption += (
            f", farthest theft {number(separation.farthest_theft)}: "
            f"{'a gap between them' if apart else 'they overlap'}"
        )
    is_rate = witness is EXTRACTION
    plot = margin_plot(
        Margin(
            name=f"margin-{witness.name.replace('_', '-')}",
            title=f"{label}: innocent models and thefts",
            description=f"{caption}.",
            closeness=witness.closeness,
            ticks=_RATE_TICKS if is_rate else SHARE_TICKS,
            bounds=(0.0, 1.0) if is_rate else None,
            innocents=innocents,
            thefts=thefts,
            line=threshold,
        )
    )
    return figure(label, plot, f"{caption}.")


def _roc(separation: Separation) -> Markup:
    label = meaning_of(separation.name).label
    caption = f"Area under the curve (AUC): {number(separation.area)}."
    plot = roc_plot(
        f"roc-{separation.name.replace('_', '-')}",
        f"{label}: ROC curve",
        caption,
        separation.curve,
    )
    return figure(f"{label}: ROC", plot, caption)
