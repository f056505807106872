"""Verdict, claim, what was asked, and why: the first page."""

from __future__ import annotations

from typing import Any

from nsmark.report.html.blocks import band, bullets, code, facts_list, paragraph, section
from nsmark.report.html.facts import Facts
from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.words import TEXT_LIMIT, clean, count, outside
from nsmark.verification.verdict import Verdict

_WORDS = {
    Verdict.OWNED: "Owned",
    Verdict.NOT_SHOWN: "Not shown",
    Verdict.COULD_NOT_MEASURE: "Could not measure",
}
# Drawn, not coloured: the three verdicts must differ on a black-and-white print.
_SIGNS = {
    Verdict.OWNED: "M8 21l9 9l17-19",
    Verdict.NOT_SHOWN: "M9 20h24",
    Verdict.COULD_NOT_MEASURE: "M14 15a7 7 0 1 1 9 7q-2 1-2 5m0 3v4",
}


def verdict_band(facts: Facts) -> Markup:
    """Return the verdict as one sentence in a band."""
    verdict = facts.report.verdict
    return band(
        verdict.value.replace("_", "-"),
        _SIGNS[verdict],
        _WORDS[verdict],
        _sentence(facts),
        _remark(verdict),
    )


def _sentence(facts: Facts) -> tuple[str, ...]:
    suspect, owner = outside(facts.suspect), outside(facts.owner)
    sentences: dict[Verdict, tuple[str, ...]] = {
        Verdict.OWNED: ("The answers of ", suspect, " carry the watermark of ", owner, "."),
        Verdict.NOT_SHOWN: (
            "The answers of ", suspect, " do not show the watermark of ", owner, ".",
        ),
        Verdict.COULD_NOT_MEASURE: (
            "Whether ", suspect, " carries the watermark of ", owner, " could not be measured.",
        ),
    }  # fmt: skip
    return sentences[facts.report.verdict]


def _remark(verdict: Verdict) -> str:
    if verdict is Verdict.OWNED:
        return "How sure that is stands in section 5, what it does not show in section 8."
    if verdict is Verdict.NOT_SHOWN:
        return "This does not show that the suspect is somebody else's own work: see section 8."
    return "Nothing follows from this, neither for the owner nor for the suspect."


def claim_section(facts: Facts) -> Markup:
    """Return who claims what since when."""
    claim = facts.report.claim
    timestamp = facts.key.get("timestamp")
    if timestamp:
        dates = joined(
            "The date in the claim is the owner's own word. A timestamp is attached to the key: ",
            outside(str(timestamp), TEXT_LIMIT),
            ". It shows that the key existed then, not that nothing older exists.",
        )
    else:
        dates = Markup(
            "The date in the claim is the owner's own word: no timestamp of anybody else is "
            "attached. Who signed is shown by the public key; when, by nothing on this page."
        )
    return section(
        1,
        "Who claims what, since when",
        facts_list(
            (
                ("Owner", outside(facts.owner)),
                ("Claim", _said(claim.get("message"), TEXT_LIMIT)),
                ("Dated", _said(claim.get("created")) or "not stated"),
                ("Public key (SHA‑256)", _digest(facts.key.get("fingerprint"))),
                ("Key", _digest(facts.report.key_id)),
            )
        ),
        paragraph(dates, class_="note"),
    )


def asked_section(facts: Facts) -> Markup:
    """Return what was asked of whom and when."""
    asked, evidence = facts.asked, facts.report.evidence
    started, finished = asked.get("started"), asked.get("finished")
    when: Markup | str = "not recorded"
    if started or finished:
        when = joined(
            clean(str(started or "not recorded")),
            " to ",
            clean(str(finished or "not recorded")),
            " (UTC)",
        )
    chosen = "that follow from the signature" if facts.fresh is None else "of the verifier's choice"
    configuration = facts.key.get("configuration")
    texts = asked.get("num_texts") or (evidence.num_texts if evidence else None)
    if texts is None and isinstance(configuration, dict):
        texts = configuration.get("num_texts")
    answers = None
    if evidence is not None:
        answers = (
            f"{count(evidence.output_dim, 'number')} per text; null space of "
            f"{count(evidence.null_dim, 'dimension')}"
        )
        if evidence.dead_rows:
            answers += f"; {count(evidence.dead_rows, 'output')} always zero, left out"
    return section(
        2,
        "What was asked of whom, and when",
        facts_list(
            (
                ("Suspect", outside(facts.suspect, TEXT_LIMIT)),
                ("Address", _said(asked.get("endpoint"), TEXT_LIMIT)),
                ("When", when),
                (
                    "Texts",
                    f"{count(texts, 'text')} {chosen}, each with the secret trigger and without it"
                    if isinstance(texts, int)
                    else "not recorded",
                ),
                ("Pair code", _pair_texts(facts)),
                ("Decoys", _decoys(asked.get("decoys"))),
                ("Repeats", _repeats(asked.get("repeats"))),
                ("Answers", answers),
                ("Duration", f"{facts.report.seconds:,.1f} s"),
            )
        ),
        paragraph(
            "The trigger stays secret, as do texts that follow from the signature: this page "
            "names neither."
            if not facts.has_pair_code
            else "The trigger stays secret, as do the words of the pair code and texts that follow "
            "from the signature: this page names none of them.",
            class_="note",
        ),
    )


def reasons_section(facts: Facts) -> Markup:
    """Return the reasons of the verdict, and why values are missing."""
    report = facts.report
    notes = report.evidence.notes if report.evidence else ()
    reasons = dict.fromkeys((*report.decision.reasons, *notes))
    calibrated = {
        "owner": "the owner's own controls",
        "verifier": "the verifier's controls",
    }.get(report.calibrated_by or "", "nobody")
    return section(
        3,
        "Why",
        paragraph(
            "Rule ",
            element("strong", f"‘{clean(report.rule)}’"),
            f", calibrated by {calibrated}. What it found:",
        ),
        bullets(element("bdi", clean(reason, TEXT_LIMIT)) for reason in reasons)
        if reasons
        else paragraph("No reason was recorded."),
    )


def _said(value: Any, limit: int = 120) -> Markup | None:
    return None if value is None or value == "" else outside(str(value), limit)


def _digest(value: Any) -> Markup:
    return code(clean(str(value), 200)) if value else Markup("not recorded")


def _pair_texts(facts: Facts) -> str | None:
    if facts.pairs is None:
        asked = "not asked, or not answered" if facts.report.evidence is not None else None
        return asked if facts.has_pair_code else None
    pairs = sum(facts.pairs.halves)
    return f"{count(pairs, 'pair')} of secret words, in texts of their own without the trigger"


def _decoys(value: Any) -> str | None:
    if not isinstance(value, int):
        return None
    if value == 0:
        return "none: a server that looks for the mark's texts sees nothing else"
    return f"{count(value, 'other text')} asked among them, so that the mark's do not stand out"


def _repeats(value: Any) -> str | None:
    if not isinstance(value, int):
        return None
    return "every text once" if value <= 1 else f"every text {value} times, answers averaged"
