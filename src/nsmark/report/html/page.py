"""The page of a verification: its sections in their order."""

from __future__ import annotations

from nsmark.report.html.document import document
from nsmark.report.html.facts import Facts
from nsmark.report.html.sections.closing import limits_section, repeat_section
from nsmark.report.html.sections.numbers import pairs_section, statistics_section
from nsmark.report.html.sections.opening import (
    asked_section,
    claim_section,
    reasons_section,
    verdict_band,
)
from nsmark.report.html.sections.planes import planes_section
from nsmark.report.html.sections.witnesses import witnesses_section
from nsmark.report.html.words import clean
from nsmark.report.pictures import Pictures
from nsmark.report.report import Report


def render_html(report: Report, pictures: Pictures | None = None) -> str:
    """Return the page of a verification; the same report gives the same bytes.

    Nothing secret is on it: neither signature nor trigger nor texts, of the answers only their
    places in a plane, of a pair code only where it was read rightly. The one exception is asked
    for by name (``show_table`` of :meth:`~nsmark.report.pictures.Pictures.of`).

    Args:
        report: What was asked, what was seen, what follows.
        pictures: The answers to draw; without them the page has no pictures of them.
    """
    facts = Facts.of(report)
    title = f"{report.verdict.value.replace('_', ' ')}: {clean(facts.suspect, 60)}"
    return document(
        f"nsmark verification, {title}",
        "Verification of a language model's ownership",
        verdict_band(facts),
        claim_section(facts),
        asked_section(facts),
        reasons_section(facts),
        statistics_section(facts),
        witnesses_section(facts, pictures),
        pairs_section(facts),
        planes_section(pictures),
        limits_section(facts),
        repeat_section(facts),
    )
