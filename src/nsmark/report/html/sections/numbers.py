"""The table of all statistics, and the plot of triggered against untriggered texts."""

from __future__ import annotations

from collections.abc import Iterable

from nsmark.core.null_space import expected_matching_degree
from nsmark.report.html.blocks import figure, paragraph, section
from nsmark.report.html.facts import Facts
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.svg.dumbbell import Pair, dumbbell_plot
from nsmark.report.html.svg.scale import nice_ticks
from nsmark.report.html.words import finite, fixed, number
from nsmark.report.report import PAIR_CODE_NAMES
from nsmark.verification.statistics import STATISTIC_NAMES

_WITH, _WITHOUT = "with trigger", "without"
_NOTHING = "Nothing was measured, so there are no numbers."
_SHARES = (
    "extraction_rate",
    "derived_extraction_rate",
    "subspace_overlap",
    "predictability",
    "aligned_subspace_overlap",
    "aligned_predictability",
)
_DEGREES = (
    "matching_degree",
    "invariant_matching_degree",
    "centred_matching_degree",
    "projective_matching_degree",
)


def statistics_section(facts: Facts) -> Markup:
    """Return every statistic with the trigger and without it."""
    heading = "Every number"
    if not facts.triggered:
        return section(4, heading, paragraph(_NOTHING))
    # Roles stand in the open: on a phone rows are not laid out as a table's, and readers that
    # go by the layout would no longer call it one.
    head = element(
        "tr",
        element("th", "Statistic, and what it means", scope="col", role="columnheader"),
        element("th", _WITH, scope="col", role="columnheader", class_="figures"),
        element("th", _WITHOUT, scope="col", role="columnheader", class_="figures"),
        role="row",
    )
    # Beside the statistics stands what else was measured, behind the first: it is of that kind.
    further = (name for name in facts.triggered if name not in STATISTIC_NAMES)
    names = [STATISTIC_NAMES[0], *further, *STATISTIC_NAMES[1:]]
    about_pairs = ""
    if facts.has_pair_code:
        about_pairs = (
            " Only the pair code is read from texts of its own, without the trigger; its numbers "
            "stand in the first column."
        )
    else:
        names = [name for name in names if name not in PAIR_CODE_NAMES]
    return section(
        4,
        heading,
        paragraph(
            "All compare the suspect's answers with those of the owner's model to the same texts, "
            "once with the trigger in them and once without. A dash: could not be had."
            f"{about_pairs}"
        ),
        element(
            "table",
            element("caption", "Statistics of the suspect, with and without the trigger"),
            element("thead", head, role="rowgroup"),
            element("tbody", *(_row(facts, name) for name in names), role="rowgroup"),
            role="table",
        ),
    )


def _row(facts: Facts, name: str) -> Markup:
    meaning = meaning_of(name)
    direction = "▲ higher is closer" if meaning.higher_is_closer else "▼ lower is closer"
    if meaning.same:
        direction += f", {meaning.same}"
    return element(
        "tr",
        element(
            "th",
            element("span", meaning.label, class_="label"),
            element("span", meaning.meaning, class_="meaning"),
            element("span", direction, class_="direction"),
            scope="row",
            role="rowheader",
        ),
        _figures(_WITH, facts.triggered.get(name)),
        _figures(_WITHOUT, facts.untriggered.get(name)),
        role="row",
    )


def _figures(column: str, value: float | None) -> Markup:
    return element("td", number(value), class_="figures", role="cell", data_column=column)


def pairs_section(facts: Facts) -> Markup:
    """Return the plot of triggered against untriggered texts."""
    heading = "With the trigger and without it"
    shares, degrees = _pairs(facts, _SHARES), _pairs(facts, _DEGREES)
    figures = []
    if shares:
        plot = dumbbell_plot(
            "pairs-shares",
            "Shares with and without the trigger",
            shares,
            far=0.0,
            same=1.0,
            form=fixed,
        )
        caption = "1 is the owner's own model. Values below 0 are drawn at 0."
        figures.append(figure("Shares", plot, caption))
    if degrees:
        chance = _chance_level(facts)
        values = [v for pair in degrees for v in (pair.triggered, pair.untriggered) if v]
        far = max([chance, *values], default=1.0)
        plot = dumbbell_plot(
            "pairs-degrees",
            "Matching degrees with and without the trigger",
            degrees,
            far=_round_above(far),
            same=0.0,
        )
        caption = (
            "0, at the right, is the owner's own model; unrelated answers without any pattern "
            f"lie at about {chance:.0f}."
        )
        figures.append(figure("Matching degrees", plot, caption))
    if not figures:
        return section(6, heading, paragraph(_NOTHING))
    return section(
        6,
        heading,
        paragraph(
            "What reads the signature (extraction, derived extraction) may find it only with the "
            "trigger. By all others a stolen model is about as close with the trigger as without "
            "it. A relative that was never marked, such as the public model that both were made "
            "from, is close only without it."
        ),
        element("div", *figures, class_="side-by-side"),
    )


def _pairs(facts: Facts, names: Iterable[str]) -> list[Pair]:
    found = []
    for name in names:
        triggered, untriggered = (
            finite(facts.triggered.get(name)),
            finite(facts.untriggered.get(name)),
        )
        if triggered is not None or untriggered is not None:
            label = meaning_of(name).label.removeprefix("Matching degree, ")
            found.append(Pair(label[0].upper() + label[1:], triggered, untriggered))
    return found


def _chance_level(facts: Facts) -> float:
    evidence = facts.report.evidence
    if evidence is None or not 0 < evidence.null_dim <= evidence.num_texts:
        return 1.0
    return expected_matching_degree(evidence.num_texts, evidence.null_dim)


def _round_above(value: float) -> float:
    ticks = nice_ticks(0.0, value, 4)
    step = ticks[1] if len(ticks) > 1 else value
    return value if value in ticks else (ticks[-1] + step if ticks else 1.0)
