"""Evidence + thresholds → verdict with its reasons. Pure: same input, same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from nsmark.errors import EvidenceError
from nsmark.keyfile.document import Thresholds
from nsmark.verification.control import Control
from nsmark.verification.measure import Evidence, Statistics

PAPER_SHARE_OF_GAP = 0.6


class Verdict(StrEnum):
    """The three possible outcomes."""

    OWNED = "owned"
    NOT_SHOWN = "not_shown"
    COULD_NOT_MEASURE = "could_not_measure"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why."""

    verdict: Verdict
    reasons: tuple[str, ...]
    passed: tuple[str, ...] = ()
    """The statistics that accuse."""
    refuses_key: bool = False
    """Whether something speaks against the key itself, whatever the suspect."""

    @classmethod
    def refusal(cls, reason: str) -> Decision:
        """Return the decision about a key that proves nothing."""
        return cls(Verdict.NOT_SHOWN, (f"the key is refused: {reason}",), refuses_key=True)


def paper_thresholds(owner: Statistics, controls: Sequence[Statistics]) -> Thresholds:
    """Return the paper's two lines: 0.6 of the gap between the owner's model and the mean control.

    Args:
        owner: The watermarked model under its own key.
        controls: Innocent models under the same key, at least one.
    """
    rates = [c.extraction_rate for c in controls if c.extraction_rate is not None]
    degrees = [
        c.invariant_matching_degree for c in controls if c.invariant_matching_degree is not None
    ]
    if (
        not rates
        or not degrees
        or owner.extraction_rate is None
        or owner.invariant_matching_degree is None
    ):
        raise EvidenceError(
            "no control gives both an extraction rate and a matching degree",
            "use at least one control of the key's output dimension",
        )
    return Thresholds(
        min_extraction_rate=PAPER_SHARE_OF_GAP * (owner.extraction_rate - float(np.mean(rates))),
        max_matching_degree=PAPER_SHARE_OF_GAP
        * (float(np.mean(degrees)) - owner.invariant_matching_degree),
    )


def _extraction_passes(statistics: Statistics, thresholds: Thresholds) -> bool:
    rate = statistics.extraction_rate
    return rate is not None and rate > thresholds.min_extraction_rate


def _matching_passes(statistics: Statistics, thresholds: Thresholds) -> bool:
    degree = statistics.invariant_matching_degree
    return degree is not None and degree < thresholds.max_matching_degree


def accepts(triggered: Statistics, thresholds: Thresholds) -> bool:
    """Return whether the paper's rule would call a model with these statistics owned."""
    return _extraction_passes(triggered, thresholds) or _matching_passes(triggered, thresholds)


def decide(
    evidence: Evidence,
    thresholds: Thresholds | None,
    controls: Sequence[Control] = (),
) -> Decision:
    """Apply the paper's rule: extraction first; if it fails, the null space.

    Two things are always required besides: the extraction must fail on untriggered texts, and
    the key must not accept a control.

    Args:
        evidence: What was measured.
        thresholds: The two lines; None if nobody has calibrated them for this verifier.
        controls: Innocent models measured under the same key.
    """
    if thresholds is None:
        return Decision(Verdict.NOT_SHOWN, ("not calibrated by the verifier",))
    accepted = [c.name for c in controls if accepts(c.triggered, thresholds)]
    if accepted:
        return Decision.refusal(f"it also accepts the innocent model {accepted[0]!r}")
    if _extraction_passes(evidence.untriggered, thresholds):
        return Decision.refusal(
            "its extractor reads the signature from untriggered texts too "
            f"(rate {evidence.untriggered.extraction_rate:.2f})"
        )
    reasons = _describe(evidence, thresholds)
    passed = []
    if _extraction_passes(evidence.triggered, thresholds):
        passed.append("extraction_rate")
    if _matching_passes(evidence.triggered, thresholds):
        passed.append("invariant_matching_degree")
    return Decision(Verdict.OWNED if passed else Verdict.NOT_SHOWN, reasons, tuple(passed))


def _describe(evidence: Evidence, thresholds: Thresholds) -> tuple[str, ...]:
    rate = evidence.triggered.extraction_rate
    degree = evidence.triggered.invariant_matching_degree
    reasons = []
    if rate is None:
        reasons.append("the signature could not be extracted: the output dimensions differ")
    else:
        passed = _extraction_passes(evidence.triggered, thresholds)
        reasons.append(
            f"extraction rate {rate:.3f} on triggered texts "
            f"{'exceeds' if passed else 'does not exceed'} {thresholds.min_extraction_rate:.3f}"
        )
    if degree is None:
        reasons.append("the matching degree could not be had")
    else:
        passed = _matching_passes(evidence.triggered, thresholds)
        reasons.append(
            f"matching degree {degree:.2f} {'lies below' if passed else 'does not lie below'} "
            f"{thresholds.max_matching_degree:.2f} (lower is closer)"
        )
    return (*reasons, *evidence.notes)
