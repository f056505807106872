"""Every witness among the innocent models it was calibrated on, and what its line is worth."""

from __future__ import annotations

import math

from nsmark.report.html.blocks import bullets, figure, paragraph, section
from nsmark.report.html.facts import Facts
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.sections.rates import rate_in_words
from nsmark.report.html.sections.strips import Lines, calibrated_lines, paper_lines
from nsmark.report.html.svg.strip import strip_plot
from nsmark.report.html.words import number, percent

# How many claims an owner may have tried before he took this one.
_TRIES = 2.0**40


def witnesses_section(facts: Facts) -> Markup:
    """Return strip plots with their lines, error rates in words, and the two p-values."""
    content: list[str] = []
    calibration, thresholds = facts.calibration, facts.report.thresholds
    if calibration is not None:
        content += [
            paragraph(
                "Each dot is an innocent model measured under the same key, as it is or with its "
                "answers changed as a thief might change them. The dashed line is where the "
                "witness begins to accuse; the diamond is the suspect. One witness is enough."
            ),
            rate_in_words(calibration),
            _plots(calibrated_lines(facts, calibration)),
        ]
    if thresholds is not None and (calibration is None or facts.report.rule == "paper"):
        content += [
            paragraph(
                "The paper's rule draws two lines, each at 0.6 of the gap between the owner's "
                "model and the mean of its controls. ",
                element("strong", "It states no rate of false accusations."),
            ),
            _plots(paper_lines(facts, thresholds)),
        ]
    if not content:
        content = [
            paragraph(
                "No line was drawn: there were no controls (innocent models measured under the "
                "same key) to draw it from. A witness that needs controls cannot accuse then."
                if facts.report.evidence is not None
                else "Nothing was measured, so there is nothing to be sure of."
            )
        ]
    content.append(_without_controls(facts))
    return section(5, "How sure that is", *content)


def _plots(lines: list[Lines]) -> Markup:
    return element(
        "div",
        *(figure(one.heading, strip_plot(one.strip), one.caption) for one in lines),
        class_="side-by-side",
    )


def _without_controls(facts: Facts) -> Markup:
    found = []
    for name, words in (
        ("pair_code", "The pair code reads {rate} of the secret table"),
        ("derived", "The derived extraction reads {rate} of the signature"),
    ):
        rate = facts.triggered.get(f"{name}_rate", facts.triggered.get(f"{name}_extraction_rate"))
        p_value = facts.triggered.get(f"{name}_p_value")
        if rate is None or p_value is None or not math.isfinite(p_value):
            continue
        found.append(
            f"{words.format(rate=percent(rate))}; a model not trained with this signature would "
            f"do so with a probability of {number(p_value)}. {_after_tries(p_value)}"
        )
    if not found:
        return Markup("")
    return element(
        "div", element("h3", "Witnesses that need no controls"), bullets(found), class_="alone"
    )


def _after_tries(p_value: float) -> str:
    tries = "2⁴⁰ (a million million) claims before this one"
    if p_value * _TRIES > 1e-3:
        return f"An owner who tried {tries} could come upon that by chance: it counts little."
    return f"If the owner had tried {tries}, it would still be at most {number(p_value * _TRIES)}."
