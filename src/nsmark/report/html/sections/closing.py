"""What was not shown, and how to repeat it."""

from __future__ import annotations

import shlex

from nsmark.report.html.blocks import bullets, code, facts_list, paragraph, section
from nsmark.report.html.facts import Facts
from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.sections.key_rows import key_rows
from nsmark.report.html.words import TEXT_LIMIT, clean, count, outside
from nsmark.verification.verdict import Verdict

_MOST_CONTROLS = 100


def limits_section(facts: Facts) -> Markup:
    """Return what nobody should read into the page."""
    report = facts.report
    items: list[str] = [
        "The page does not show who trained the mark in first: that is what dates are for. A key "
        "can be made after the fact from the answers of somebody else's model; only a timestamp "
        "from before the model was public tells the two apart.",
        *_about_pairs(facts),
        _whose_controls(facts),
        *(
            joined("Not checked: ", element("bdi", clean(sentence, TEXT_LIMIT)))
            for sentence in report.unchecked
        ),
    ]
    if not report.unchecked:
        items.append(
            "Nothing was left unchecked of what follows from the signature: trigger and texts "
            "were derived again."
        )
    if facts.calibration is None or facts.calibration.rate is None:
        whom = " by any other witness than the pair code" if facts.pairs is not None else ""
        items.append(f"How often an innocent model would be accused{whom} is not stated.")
    if report.verdict is Verdict.NOT_SHOWN:
        items.append(
            "That the mark is not shown does not show that it is not there: a thief may have "
            "covered it, and a line may be drawn too carefully for this suspect."
        )
    items.append(
        "The extraction rate proves little by itself: a reader can be fitted to any public "
        "model. It counts together with controls and dates."
    )
    return section(8, "What this page does not show", bullets(items))


def _about_pairs(facts: Facts) -> list[str]:
    if facts.pairs is None:
        if not facts.has_pair_code or facts.report.evidence is None:
            return []
        return ["The pair code says nothing: its texts were not asked, or not answered."]
    said = (
        "What is read of the pair code comes from training with this signature, in the suspect or "
        "in a model that it was made from. It does not show who trained the signature in, nor "
        "when: dates do."
    )
    if facts.pair_code_counts:
        said += (
            " But unlike the other witnesses it cannot be made up afterwards from the answers of "
            "somebody else's model."
        )
    return [said]


def _whose_controls(facts: Facts) -> str:
    listed = "controls"
    if facts.controls:
        models = len({control.model for control in facts.controls})
        listed = f"{count(models, 'innocent model')} ({count(len(facts.controls), 'measurement')})"
    return {
        "owner": f"The lines were drawn from {listed} of the owner's own choice. Whoever does not "
        "trust the owner measures innocent models himself, and gives them with --controls.",
        "verifier": f"The lines were drawn from {listed} of the verifier's choice. They speak for "
        "models like those.",
    }.get(
        facts.report.calibrated_by or "",
        "Nobody's controls calibrated this verification: no line was drawn.",
    )


def repeat_section(facts: Facts) -> Markup:
    """Return versions, digests, key, and the command."""
    report, key = facts.report, facts.key
    return section(
        9,
        "How to repeat it",
        paragraph("With the key file whose id is below, and the suspect as it was:"),
        element("pre", code(_command(facts)), class_="command"),
        facts_list(key_rows(report.key_id, key, report.versions)),
        *_controls(facts),
    )


def _command(facts: Facts) -> str:
    """Return the command without secrets: keys of an API come from the environment."""
    report = facts.report
    if facts.command:
        return clean(facts.command, TEXT_LIMIT)
    words = ["nsmark verify KEY", shlex.quote(clean(facts.suspect, TEXT_LIMIT))]
    words.append(f"--rule {shlex.quote(clean(report.rule))}")
    if report.calibrated_by == "verifier":
        words.append("--controls CONTROL …")
    asked = sum(facts.pairs.halves) if facts.pairs is not None else 0
    if report.evidence is not None and asked < (facts.pairs_in_table or 0):
        # Fewer pairs than the table has: every one of them was asked once, or none at all.
        words.append(f"--pair-texts {asked}")
    if facts.fresh:
        words.append(f"--owner-model DIR --fresh {shlex.quote(clean(facts.fresh, 200))}")
    return " ".join([*words, "--report page.html"])


def _controls(facts: Facts) -> tuple[Markup, ...]:
    if not facts.controls:
        return ()
    shown = [
        joined(
            outside(control.name, 80),
            "" if control.rank is None else f" (rank {control.rank:,})",
        )
        for control in facts.controls[:_MOST_CONTROLS]
    ]
    left_out = len(facts.controls) - len(shown)
    return (
        element("h3", f"Controls: innocent models under the same key ({len(facts.controls):,})"),
        element("ol", *(element("li", name) for name in shown), class_="controls"),
        *([paragraph(f"and {left_out:,} more", class_="note")] if left_out else []),
    )
