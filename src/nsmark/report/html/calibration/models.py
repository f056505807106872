"""The simulated thefts and the controls, model by model."""

from __future__ import annotations

from collections import Counter

from nsmark.report.html.blocks import bullets, paragraph, section, table
from nsmark.report.html.calibration.facts import CalibrationFacts, value_of
from nsmark.report.html.glossary import meaning_of
from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.words import TEXT_LIMIT, clean, count, fixed, outside
from nsmark.verification.controls import CHANGED, Control
from nsmark.verification.statistics import STATISTICS
from nsmark.verification.verdict import Decision, Verdict

_MOST_ROWS = 200
_MOST_REASONS = 10
_AS_IT_IS = "answers as they are"


def thefts_section(facts: CalibrationFacts) -> Markup:
    """Return which simulated thefts would be found, and which would not."""
    heading = "Which thefts would be missed"
    if not facts.thefts:
        return section(4, heading, paragraph("No theft was simulated."))
    total, missed = len(facts.thefts), len(facts.missed)
    said = (
        f"All {total:,} would be found."
        if not missed
        else f"{missed:,} of {total:,} would be missed; {total - missed:,} would be found."
    )
    models: dict[str, list[tuple[Control, Decision]]] = {}
    for pair in facts.judged:
        models.setdefault(pair[0].model, []).append(pair)
    rows = [_theft_row(model, pairs) for model, pairs in list(models.items())[:_MOST_ROWS]]
    return section(
        4,
        heading,
        paragraph(
            "The marked model was changed as a thief might change it, and its answers were changed "
            "in several ways on top of that. Each was judged as verify would judge it, by the "
            "controls of its kinship. ",
            element("strong", said),
        ),
        table("Simulated thefts", "Stolen model", ("found", "missed behind"), rows),
        *_more(len(models) - len(rows)),
        *_refused(facts),
    )


def _refused(facts: CalibrationFacts) -> list[Markup]:
    """Tell the thefts that no witness saw from those that were seen and let go."""
    refused = facts.refused
    silent = len(facts.missed) - len(refused)
    if not refused:
        return []
    reasons = Counter(next(iter(decision.reasons), "no reason") for _, decision in refused)
    return [
        paragraph(
            element("strong", f"{len(refused):,} of the missed lie beyond a line all the same"),
            f"; of the other {silent:,} no witness speaks." if silent else ".",
            " What was said of them instead, and how often:",
        ),
        bullets(
            joined(element("bdi", clean(reason, TEXT_LIMIT)), f" ({amount:,})")
            for reason, amount in reasons.most_common(_MOST_REASONS)
        ),
    ]


def _theft_row(
    model: str, pairs: list[tuple[Control, Decision]]
) -> tuple[Markup, tuple[str, Markup]]:
    missed = [
        theft.name.partition(CHANGED)[2] or _AS_IT_IS
        for theft, decision in pairs
        if decision.verdict is not Verdict.OWNED
    ]
    names = joined(
        *(
            joined("; " if number else "", element("bdi", clean(name, 80)))
            for number, name in enumerate(missed)
        )
    )
    return outside(model, 80), (
        f"{len(pairs) - len(missed)} of {len(pairs)}",
        element("span", names, class_="wrapped") if missed else Markup("–"),
    )


def controls_section(facts: CalibrationFacts) -> Markup:
    """Return every innocent model that the lines were drawn from."""
    measured = [
        witness
        for witness in STATISTICS
        if any(value_of(witness, control) is not None for control in facts.controls)
    ]
    rows = [
        (
            outside(control.name, 80),
            tuple(
                f"{fixed(value_of(witness, control))}\u00a0|\u00a0"
                f"{fixed(value_of(witness, control, triggered=False))}"
                for witness in measured
            ),
        )
        for control in facts.controls[:_MOST_ROWS]
    ]
    columns = [meaning_of(witness.name).label for witness in measured]
    cut = (
        f" The key holds {count(facts.num_cut, 'further measurement')} of lower rank, of the same "
        "models: suspects whose answers were cut to fewer dimensions are compared with those."
        if facts.num_cut
        else ""
    )
    unmade = [element("bdi", clean(line, TEXT_LIMIT)) for line in facts.not_made]
    return section(
        5,
        "Every control",
        paragraph(
            "Innocent models, with what they measure on triggered texts | on the same texts "
            f"without the trigger.{cut}"
        ),
        table("Controls", "Innocent model", columns, rows),
        *_more(len(facts.controls) - len(rows)),
        *([paragraph("Asked for, and not among them:"), bullets(unmade)] if unmade else []),
    )


def _more(left_out: int) -> list[Markup]:
    return [paragraph(f"and {left_out:,} more", class_="note")] if left_out > 0 else []
