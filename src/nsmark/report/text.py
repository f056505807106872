"""What a report says in a terminal."""

from __future__ import annotations

from nsmark.report.odds import pair_code_in_words
from nsmark.report.report import PAIR_CODE_NAMES, SIZED, Report, with_sized
from nsmark.verification.evidence import Evidence
from nsmark.verification.verdict import PAIR_STATISTICS, Verdict, has_pair_code

_SHOWN = (
    ("extraction_rate", "extraction rate (1 = the signature)"),
    (SIZED, "  at the size of the owner's outputs"),
    ("derived_extraction_rate", "derived extraction (½ = chance)"),
    ("derived_p_value", "  its p-value"),
    ("pair_code_rate", "pair code (½ = chance; texts of its own)"),
    ("pair_code_p_value", "  its p-value"),
    ("pair_wager_p_value", "  the same by betting on its signs"),
    ("matching_degree", "matching degree, paper's (0 = same)"),
    ("invariant_matching_degree", "matching degree, any basis (0 = same)"),
    ("centred_matching_degree", "  centred"),
    ("projective_matching_degree", "  up to a scale per text"),
    ("subspace_overlap", "subspace overlap (1 = same)"),
    ("predictability", "predictability (1 = same)"),
    ("alignment_gap", "alignment gap (0 = same)"),
)


def report_text(report: Report) -> str:
    """Return a page for people."""
    # The owner chose his name: with control characters in it he could rewrite this page.
    owner, suspect = _printable(report.claim.get("owner", "")), _printable(report.suspect)
    words = {
        Verdict.OWNED: f"OWNED: {suspect} carries the mark of {owner}",
        Verdict.NOT_SHOWN: f"NOT SHOWN: no mark of {owner} in {suspect}",
        Verdict.COULD_NOT_MEASURE: f"COULD NOT MEASURE {suspect}",
    }
    evidence = report.evidence
    pairs = evidence.pairs if evidence else None
    lines = [words[report.verdict]]
    if evidence is not None and pairs is not None:
        said = pair_code_in_words(pairs, evidence.wager)
        lines.append(f"pair code: {said}{_pair_standing(report, evidence)}")
    lines.append("")
    lines += [f"  - {reason}" for reason in (*report.decision.reasons, *report.unchecked)]
    if evidence is not None:
        triggered, untriggered = with_sized(evidence)
        lines += ["", f"{'':40}{'triggered':>12}{'untriggered':>13}"]
        lines += [
            f"{label:40}{_number(triggered[name]):>12}{_number(untriggered[name]):>13}"
            for name, label in _SHOWN
            if pairs is not None or name not in PAIR_CODE_NAMES
        ]
        lines += [
            "",
            f"{evidence.num_texts} texts, {evidence.output_dim} dimensions, null "
            f"space of {evidence.null_dim}, rule '{report.rule}', calibrated by "
            f"{report.calibrated_by or 'nobody'}, {report.seconds:.1f} s",
        ]
    lines += [
        f"key {report.key_id}",
        "Nothing here shows when this key was made: a key made afterwards from anybody's model "
        "matches that model. Compare the key's id with a dated receipt.",
    ]
    return "\n".join(lines)


def _pair_standing(report: Report, evidence: Evidence) -> str:
    if report.pair_doubt is not None:
        return "; it does not count, see below"
    counts = PAIR_STATISTICS & set(report.decision.passed)
    if has_pair_code(evidence.triggered) and not counts:
        return "; the verdict does not rest on it"
    return ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"
