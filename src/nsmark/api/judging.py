"""Evidence and controls → decision, by either rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsmark.api.controls import Controls
from nsmark.keyfile.document import Thresholds
from nsmark.verification.calibrated_rule import (
    decide_calibrated,
    describe_pairs,
    has_pair_code,
    key_flaw,
)
from nsmark.verification.calibration import Calibration, calibrate
from nsmark.verification.control import CHANGED, Control
from nsmark.verification.decide import Decision, Verdict, decide, paper_thresholds
from nsmark.verification.measure import Evidence, Yardstick

RULES = ("calibrated", "paper")


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision with the lines and controls behind it."""

    decision: Decision
    thresholds: Thresholds | None = None
    calibration: Calibration | None = None
    controls: Sequence[Control] = ()


def judge(
    rule: str,
    yardstick: Yardstick,
    evidence: Evidence,
    controls: Controls,
    rate: float,
    pair_doubt: str | None = None,
) -> Judged:
    """Apply a rule.

    Args:
        rule: One of :data:`RULES`.
        yardstick: The owner's side.
        evidence: The suspect's.
        controls: Innocent models, measured.
        rate: False accusations that the rule ``calibrated`` allows.
        pair_doubt: Why the key's pair code does not count.
    """
    # The pair code needs no controls.
    by_itself = rule == "calibrated" and has_pair_code(evidence.triggered) and pair_doubt is None
    if not controls.measured and not by_itself:
        reason = (
            "not calibrated by the verifier"
            if controls.by == "verifier"
            else "the key holds no controls: give your own with --controls"
        )
        found = describe_pairs(evidence, pair_doubt) if rule == "calibrated" else []
        return Judged(Decision(Verdict.NOT_SHOWN, (reason, *found)))
    if rule == "paper":
        own, _ = yardstick.own()
        # Never the numbers written in the key: they follow from its outputs and its controls, and
        # a key that says otherwise was made to accuse.
        plain = [control for control in controls.measured if CHANGED not in control.name]
        thresholds = paper_thresholds(own, [control.triggered for control in plain])
        return Judged(decide(evidence, thresholds, plain), thresholds, None, plain)
    like = controls.like(evidence)
    num_bits = yardstick.key.configuration.num_bits
    calibration = calibrate(like, rate, suspect=evidence.untriggered, num_bits=num_bits)
    decision = decide_calibrated(
        evidence,
        calibration,
        controls.measured,
        key_flaw(yardstick.key, yardstick.questions),
        yardstick.triggered.rank,
        pair_doubt,
    )
    return Judged(decision, None, calibration, like)
