"""What was calibrated and what can be stated: the first page."""

from __future__ import annotations

from nsmark.report.html.blocks import band, paragraph, section, table
from nsmark.report.html.calibration.facts import CalibrationFacts
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.markup import Markup, joined
from nsmark.report.html.sections.rates import rate_in_words
from nsmark.report.html.words import count, number, one_in, outside, percent
from nsmark.verification.thresholds import NEIGHBOURS

_TICK, _DASH = "M8 21l9 9l17-19", "M9 20h24"


def stated_band(facts: CalibrationFacts) -> Markup:
    """Return what can be stated, in one sentence."""
    calibration = facts.calibration
    models = count(calibration.num_models, "innocent model")
    start = ("The key of ", outside(facts.owner), f" was calibrated on {models}: ")
    if calibration.rate is None:
        return band(
            "not-shown",
            _DASH,
            "Calibrated, no rate stated",
            (*start, "too few to state how often an innocent model would be accused."),
            _remark(facts),
        )
    return band(
        "owned",
        _TICK,
        "Calibrated",
        (
            *start,
            f"at most {one_in(calibration.rate)} of models like them would be accused, with "
            f"{percent(calibration.confidence)} confidence.",
        ),
        _remark(facts),
    )


def _remark(facts: CalibrationFacts) -> str:
    calibration = facts.calibration
    sentences = []
    if calibration.rate is not None:
        sentences.append("This holds if their closeness scatters normally.")
    if calibration.num_models > 1:
        sentences.append(
            f"Without that assumption: by the lines of the others {calibration.accused} of "
            f"{calibration.num_models:,} controls would be accused, which bounds the rate at "
            f"{percent(calibration.bound)}."
            if calibration.rate is not None
            else f"By the lines of the others {calibration.accused} of {calibration.num_models:,} "
            f"controls would be accused, which bounds the rate at {percent(calibration.bound)}."
        )
    sentences.append(
        f"Of {count(len(facts.thefts), 'simulated theft')} {len(facts.found):,} would be found."
        if facts.thefts
        else "No theft was simulated."
    )
    return " ".join(sentences)


def stated_section(facts: CalibrationFacts) -> Markup:
    """Return the error rates in words, and the lines with their margins."""
    return section(
        1,
        "What can be stated",
        rate_in_words(facts.calibration),
        paragraph(
            "Each witness begins to accuse at its line. The lines below are drawn from all "
            "controls",
            f". For a suspect they are drawn again, from the {NEIGHBOURS} controls nearest to it "
            "in kinship (section 2), and never before the closest of all."
            if facts.calibration.num_models > NEIGHBOURS
            else ".",
        ),
        _lines(facts),
    )


def _lines(facts: CalibrationFacts) -> Markup:
    separations = {each.name: each for each in facts.separations}
    columns = ("line", "closest innocent", "farthest theft", "area under ROC")
    rows = []
    for line in facts.calibration.thresholds:
        apart = separations.get(line.name)
        unreachable = "" if line.can_be_reached else " Nobody can pass this line."
        rows.append(
            (
                joined(meaning_of(line.name).label, unreachable),
                (
                    number(line.value),
                    number(line.closest_control),
                    number(apart.farthest_theft if apart else None),
                    number(apart.area if apart else None),
                ),
            )
        )
    return table("Lines and margins of every witness", "Statistic (1 is closest)", columns, rows)
