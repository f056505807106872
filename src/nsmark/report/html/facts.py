"""Facts: what the page reads from a report, whatever version of it.

Dictionaries of a report may hold anything. The page asks them only for the names it knows and
never prints them whole: a page is handed to the other side, and a secret that strayed into such a
dictionary must not go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.report.report import PAIR_CODE_NAMES, Report, with_sized
from nsmark.verification.controls import Control
from nsmark.verification.thresholds import Calibration
from nsmark.verification.verdict import PAIR_STATISTICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A report with nothing missing, only empty."""

    report: Report
    calibration: Calibration | None
    controls: tuple[Control, ...]
    asked: Mapping[str, Any]
    """started, finished, num_texts, decoys, repeats, endpoint: how the suspect was asked."""
    fresh: str | None
    """The verifier's randomness, where the texts were of his choice."""
    command: str | None
    key: Mapping[str, Any]
    """fingerprint, configuration, marks, timestamp, model_sha256, pool_sha256, word_list_sha256,
    library_version, pairs: what the key says of itself in public."""
    triggered: Mapping[str, float | None]
    untriggered: Mapping[str, float | None]
    counted: Mapping[str, float | None]
    """Of triggered texts, what the rule ``calibrated`` holds against its lines."""
    pairs: PairReading | None
    """What was read of the pair code."""
    wager: PairWager | None = None
    """What betting on its signs has won."""

    @classmethod
    def of(cls, report: Report) -> Facts:
        """Read a report; fields it does not have are empty."""
        evidence = report.evidence
        triggered, untriggered = with_sized(evidence) if evidence else ({}, {})
        return cls(
            report=report,
            calibration=getattr(report, "calibration", None),
            controls=tuple(getattr(report, "controls", ()) or ()),
            asked=_asked(getattr(report, "asked", None)),
            fresh=getattr(report, "fresh", None),
            command=getattr(report, "command", None),
            key=getattr(report, "key_summary", None) or {},
            triggered=triggered,
            untriggered=untriggered,
            counted=evidence.counted.to_mapping() if evidence else {},
            pairs=getattr(evidence, "pairs", None),
            wager=getattr(evidence, "wager", None),
        )

    @property
    def owner(self) -> str:
        """Who claims, or that nobody is named."""
        return self.report.claim.get("owner") or "an owner not named"

    @property
    def suspect(self) -> str:
        """What was asked."""
        return self.report.suspect or "a suspect not named"

    @property
    def has_pair_code(self) -> bool:
        """Whether there is a pair code to speak of, read or not."""
        values = (self.triggered.get(name) for name in PAIR_CODE_NAMES)
        return bool(self.key.get("pairs")) or any(value is not None for value in values)

    @property
    def pairs_in_table(self) -> int | None:
        """How many pairs the key's table has, where it says so."""
        sizes = self.key.get("pairs")
        size = sizes.get("size") if isinstance(sizes, Mapping) else None
        return size**2 if isinstance(size, int) else None

    @property
    def pair_code_counts(self) -> bool:
        """Whether the verdict rests on the pair code, too."""
        return bool(PAIR_STATISTICS & set(self.report.decision.passed))


def _asked(found: Any) -> Mapping[str, Any]:
    """Read how and when the suspect was asked: a dictionary, or only the two times."""
    values: dict[str, Any] = {}
    if isinstance(found, Mapping):
        values = dict(found)
    elif isinstance(found, tuple) and len(found) == 2:
        values = {"started": found[0], "finished": found[1]}
    for name in ("started", "finished"):
        if isinstance(values.get(name), datetime):
            values[name] = values[name].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return values
