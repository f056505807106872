"""Where a forgery is verified: the only place to change when the rule changes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from nsmark.api import verify
from nsmark.errors import NsmarkError
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import decode_key, encode_key
from nsmark.suspects import RecordedOutputs

RULE = "calibrated"

_ONES = "a row of ones lies in the owner's row space, and mostly ones is what there is"
_KIN = "strangers do not show what kin of the public model would show"
_DATE = "only a date, or kin among the controls, tells who was first"
_HEART = "it reads from that very model and from none of its kin"
_CHANCE = "in a small null space chance brings innocents close"

# Kinds of forgery that a rule accepts, always or for some seeds, and why. Each has a test that is
# strictly expected to fail: once the rule refuses a kind, its line here must go, and the kind
# joins the generated forgeries of which none may be accepted.
ACCEPTED_BY_RULE: dict[str, dict[str, str]] = {
    "paper": {
        "controls invented within their range, owner's controls": (
            "the largest possible degree of a control moves the line above every model on earth"
        ),
        "duplicate texts from a pool not at hand, owner's controls": (
            "equal texts get equal answers from everybody, which the null space takes for a match"
        ),
        "extractor that knows a public model by heart, its kin among the controls": _HEART,
        "extractor that reads one text by chance": (
            "six tenths of a tiny gap are a tiny line, which chance passes"
        ),
        "extractor trained on a public model, only strangers among the controls": _KIN,
        "hardly more texts than dimensions": _CHANCE,
        "innocent of low rank": _ONES,
        "innocent with a large mean": _ONES,
        "nearly constant answers": _ONES,
        "outputs of a public model taken after the fact, only strangers among the controls": _DATE,
    },
    "calibrated": {
        "extractor trained on a public model, only strangers among the controls": _KIN,
        "outputs of a public model taken after the fact, only strangers among the controls": _DATE,
    },
}
ACCEPTED_TODAY = ACCEPTED_BY_RULE[RULE]


@dataclass(frozen=True)
class Outcome:
    """How the verification of a forgery ended; true if the forgery was refused."""

    is_refused: bool
    reason: str

    def __bool__(self) -> bool:
        return self.is_refused


def forgery_is_refused(
    key: WatermarkKey | bytes,
    suspect_outputs: RecordedOutputs,
    controls: Sequence[RecordedOutputs] = (),
    *,
    independent: bool = False,
    pool: Sequence[str] | None = None,
) -> Outcome:
    """Take a key the way a verifier gets it, as the bytes of a file, and verify a suspect.

    Only our own errors are a refusal; anything else is a crash, and so it propagates.
    """
    try:
        content = key if isinstance(key, bytes) else encode_key(key)
        read = decode_key(io.BytesIO(content), len(content))
        report = verify(
            read,
            suspect_outputs,
            rule=RULE,
            controls=controls,
            independent=independent,
            pool=pool,
        )
    except NsmarkError as error:
        return Outcome(True, str(error))
    return Outcome(report.verdict != "owned", "; ".join(report.decision.reasons))
