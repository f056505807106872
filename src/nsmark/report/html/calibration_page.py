"""The page of a calibration: what the lines of a key rest on, and what they are worth."""

from __future__ import annotations

from nsmark.report.html.calibration.apart import apart_section, kinship_section
from nsmark.report.html.calibration.closing import limits_section, repeat_section
from nsmark.report.html.calibration.facts import CalibrationFacts
from nsmark.report.html.calibration.models import controls_section, thefts_section
from nsmark.report.html.calibration.stated import stated_band, stated_section
from nsmark.report.html.document import document
from nsmark.report.html.words import clean


def render_calibration(facts: CalibrationFacts) -> str:
    """Return the page of a calibration; the same facts give the same bytes.

    Nothing secret is on it: neither signature nor trigger nor texts.
    """
    return document(
        f"nsmark calibration, {clean(facts.owner, 60)}",
        "Calibration of a watermark key",
        stated_band(facts),
        stated_section(facts),
        kinship_section(facts),
        apart_section(facts),
        thefts_section(facts),
        controls_section(facts),
        limits_section(facts),
        repeat_section(facts),
    )
