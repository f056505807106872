"""What a calibration does not show, and how to repeat it."""

from __future__ import annotations

from nsmark.report.html.blocks import bullets, code, facts_list, paragraph, section
from nsmark.report.html.calibration.facts import CalibrationFacts
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.sections.key_rows import key_rows
from nsmark.report.html.words import TEXT_LIMIT, clean


def limits_section(facts: CalibrationFacts) -> Markup:
    """Return what nobody should read into the page."""
    items = [
        "No suspect was judged here. The page says what the lines of this key are worth, not whose "
        "model anything is, and nothing about dates.",
        "The controls are of the owner's own choice, most of them made from one unmarked model. "
        "The stated rate speaks of models like them. Whoever does not trust the owner measures "
        "innocent models himself: verify takes them with --controls and --independent.",
        "The simulated thefts are what somebody thought of. The share that was found is not the "
        "chance to find a thief, who may do something else."
        if facts.thefts
        else "What the lines would find is not known: no theft was simulated.",
    ]
    if facts.separations:
        items.append(
            "ROC curves and areas describe these very models and are no error rates. One stolen "
            "model behind several changes of its answers counts several times in them. Each "
            "witness stands alone there, and with one line for all: the verdict takes them "
            "together, by kinship, so it can find what a curve seems to miss."
        )
    if facts.missed:
        items.append(
            "What would be missed by these controls may be found with others, or with another "
            "rate; more accusations allowed means more innocent models accused."
        )
    return section(6, "What this page does not show", bullets(items))


def repeat_section(facts: CalibrationFacts) -> Markup:
    """Return versions, digests, key, and the command."""
    command = element("pre", code(clean(facts.command, TEXT_LIMIT)), class_="command")
    former = code(clean(facts.former_key_id, 200)) if facts.former_key_id else None
    first, *others = key_rows(facts.key_id, facts.key, facts.versions)
    return section(
        7,
        "How to repeat it",
        paragraph(
            "With the key that was calibrated, its owner's identity and the same models. On "
            "another machine the last digits may differ."
        ),
        *([command] if facts.command else []),
        facts_list(
            (
                ("Key that was calibrated", former),
                ("Key with the controls", first[1]),
                *others,
            )
        ),
    )
