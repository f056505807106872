"""Report: what was asked, what was seen, what follows; stable JSON and a plain-text view."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nsmark.keyfile.document import Thresholds
from nsmark.keyfile.schema import WatermarkKey
from nsmark.report.versions import library_versions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import Control
from nsmark.verification.evidence import Evidence
from nsmark.verification.questions import Questions
from nsmark.verification.statistics import STATISTIC_NAMES
from nsmark.verification.thresholds import Calibration
from nsmark.verification.verdict import Decision, Verdict

EXIT_CODES = {Verdict.OWNED: 0, Verdict.NOT_SHOWN: 1, Verdict.COULD_NOT_MEASURE: 3}

SIZED = "sized_extraction_rate"
PAIR_CODE_NAMES = ("pair_code_rate", "pair_code_p_value", "pair_wager_p_value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one verification."""

    decision: Decision
    rule: str
    evidence: Evidence | None
    """None when the suspect could not be measured."""
    thresholds: Thresholds | None
    """The two lines of the rule ``paper``."""
    calibration: Calibration | None = None
    """The lines of the rule ``calibrated``."""
    controls: tuple[Control, ...] = ()
    """The innocent models behind the lines."""
    calibrated_by: str | None
    """``owner``, ``verifier`` or None."""
    unchecked: tuple[str, ...]
    """Derivations that could not be recomputed, in sentences."""
    suspect: str
    key_id: str
    claim: dict[str, str]
    versions: dict[str, str | None]
    seconds: float
    pair_doubt: str | None = None
    """Why what was read of the pair code does not count; None if nothing speaks against it."""
    fresh: str | None = None
    """The verifier's randomness, if the texts were of his choice."""
    key_summary: dict[str, Any] = field(default_factory=dict)
    """What of the key is no secret."""
    asked: tuple[datetime, datetime] | None = None
    """When the measurement began and ended."""
    questions: Questions | None = field(default=None, repr=False)
    """What was asked; not part of the document."""
    answers: RecordedOutputs | None = field(default=None, repr=False)
    """What the suspect answered, if it did: to be drawn, or kept. Not part of the document."""

    @classmethod
    def unmeasured(
        cls, *reasons: str, suspect: str = "", key: WatermarkKey | None = None
    ) -> Report:
        """Return the report of a verification that ended before the suspect was measured."""
        return cls(
            decision=Decision(Verdict.COULD_NOT_MEASURE, reasons),
            rule="calibrated",
            evidence=None,
            thresholds=None,
            calibrated_by=None,
            unchecked=(),
            suspect=suspect,
            key_id="" if key is None else key.key_id,
            key_summary={} if key is None else key.public_view(),
            claim={} if key is None else key.signed_claim.claim.to_mapping(),
            versions=library_versions(),
            seconds=0.0,
        )

    @property
    def verdict(self) -> Verdict:
        """The outcome."""
        return self.decision.verdict

    @property
    def exit_code(self) -> int:
        """What the command line ends with: 0 owned, 1 not shown, 3 could not measure."""
        return EXIT_CODES[self.verdict]

    def to_mapping(self) -> dict[str, Any]:
        """Return the stable JSON form; names never change, values are null where not to be had."""
        evidence = self.evidence
        nothing: dict[str, float | None] = dict.fromkeys(STATISTIC_NAMES)
        return {
            "verdict": str(self.verdict),
            "rule": self.rule,
            "reasons": list(self.decision.reasons),
            "passed": list(self.decision.passed),
            "unchecked": list(self.unchecked),
            **(evidence.triggered.to_mapping() if evidence else nothing),
            "untriggered": evidence.untriggered.to_mapping() if evidence else nothing,
            "sized_extraction_rate": evidence.sized_extraction_rate if evidence else None,
            "sized_untriggered_rate": evidence.sized_untriggered_rate if evidence else None,
            "pair_code": self._pair_code(),
            "thresholds": self._thresholds(),
            "calibrated_by": self.calibrated_by,
            "num_texts": evidence.num_texts if evidence else None,
            "output_dim": evidence.output_dim if evidence else None,
            "null_dim": evidence.null_dim if evidence else None,
            "dead_rows": evidence.dead_rows if evidence else None,
            "rank": evidence.rank if evidence else None,
            "fresh": self.fresh,
            "asked": [moment.isoformat(timespec="seconds") for moment in self.asked or ()],
            "key_id": self.key_id,
            "claim": self.claim,
            "suspect": self.suspect,
            "versions": self.versions,
            "seconds": round(self.seconds, 3),
        }

    def _pair_code(self) -> dict[str, Any] | None:
        """Return what was read; without the scores, whose signs would give the table away."""
        reading = self.evidence.pairs if self.evidence else None
        if self.evidence is None or reading is None:
            return None
        wager = self.evidence.wager
        return {
            "rate": reading.rate,
            "p_value": reading.p_value,
            "right": list(reading.right),
            "pairs": list(reading.halves),
            "decades_won": None if wager is None else wager.decades,
            "wager_p_value": None if wager is None else wager.p_value,
            "num_texts": self.evidence.num_pair_texts,
            "doubt": self.pair_doubt,
        }

    def _thresholds(self) -> dict[str, Any] | None:
        if self.calibration is not None:
            return dict(self.calibration.to_mapping())
        return self.thresholds.model_dump(mode="json") if self.thresholds else None

    def to_json(self) -> str:
        """Return the JSON text."""
        return json.dumps(self.to_mapping(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_text(self) -> str:
        """Return a page for people."""
        from nsmark.report.text import report_text

        return report_text(self)


def with_sized(
    evidence: Evidence,
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return all statistics of triggered and untriggered texts, what is read at size among them."""
    return (
        evidence.triggered.to_mapping() | {SIZED: evidence.sized_extraction_rate},
        evidence.untriggered.to_mapping() | {SIZED: evidence.sized_untriggered_rate},
    )
