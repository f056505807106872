"""Every witness among the innocent models it was calibrated on, and what its line is worth.

The pair code, which needs none of them, comes first.
"""

from __future__ import annotations

import math

from nsmark.report.html.blocks import bullets, figure, paragraph, section
from nsmark.report.html.facts import Facts
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.sections.pair_code import pair_code_block
from nsmark.report.html.sections.rates import rate_in_words
from nsmark.report.html.sections.strips import Lines, calibrated_lines, paper_lines
from nsmark.report.html.svg.strip import strip_plot
from nsmark.report.html.words import number, percent
from nsmark.report.pictures import Pictures

# How many claims an owner may have tried before he took this one.
_TRIES = 2.0**40


def witnesses_section(facts: Facts, pictures: Pictures | None = None) -> Markup:
    """Return the pair code, strip plots with their lines, error rates and p-values in words."""
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
    content = [pair_code_block(facts, pictures), *content, _derived(facts)]
    return section(5, "How sure that is", *content)


def _plots(lines: list[Lines]) -> Markup:
    return element(
        "div",
        *(figure(one.heading, strip_plot(one.strip), one.caption) for one in lines),
        class_="side-by-side",
    )


def _derived(facts: Facts) -> Markup:
    rate = facts.triggered.get("derived_extraction_rate")
    p_value = facts.triggered.get("derived_p_value")
    if rate is None or p_value is None or not math.isfinite(p_value):
        return Markup("")
    said = (
        f"The derived extraction reads {percent(rate)} of the signature; a model not trained with "
        f"this signature would do so with a probability of {number(p_value)}. "
        f"{_after_tries(p_value)}"
    )
    return element(
        "div", element("h3", "Witnesses that need no controls"), bullets([said]), class_="alone"
    )


def _after_tries(p_value: float) -> str:
    tries = "2⁴⁰ (a million million) claims before this one"
    if p_value * _TRIES > 1e-3:
        return f"An owner who tried {tries} could come upon that by chance: it counts little."
    return f"If the owner had tried {tries}, it would still be at most {number(p_value * _TRIES)}."
