"""Who was first: the rule by which a measured dispute is ruled, without clocks or files.

A mark is worth what its date is worth: a key made after the fact from somebody else's model matches
that model. So a claim holds only for suspects released after its filing, it falls where the mark is
found in something of the other side's that is older, and of several claims the earliest prevails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from nsmark.verification.verdict import Verdict


class Outcome(StrEnum):
    """How a dispute ends."""

    UPHELD = "upheld"
    NOT_SHOWN = "not_shown"
    FELL = "fell"
    """The mark is in something older of the other side's."""
    NOT_COVERED = "not_covered"
    """The suspect was released before the filing."""
    PRECEDED = "preceded"
    """Somebody else's earlier claim on the same suspect is upheld."""
    COULD_NOT_MEASURE = "could_not_measure"


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A proven time; of two entries with the same time the one further up in the log is older."""

    time: datetime
    """With its time zone."""
    log_index: int
    is_outside: bool = field(default=False, compare=False)
    """Whether somebody else than this authority vouches for the time."""

    def __str__(self) -> str:
        voucher = ", dated by a time stamp from elsewhere" if self.is_outside else ""
        return f"{_said(self.time)} (entry {self.log_index}{voucher})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """What the respondent holds against a claim, measured under the claim's key."""

    name: str
    filed: Moment
    by: str
    """Fingerprint of whoever filed it."""
    verdict: Verdict | None
    """None if it was not measured for reasons of the authority's, such as its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One admitted key, what it found on the suspect, and what was held against it."""

    key_id: str
    owner: str
    """Fingerprint."""
    filed: Moment
    verdict: Verdict | None
    """What the measurement of the suspect under this key came to; None, for another's claim, if it
    was not measured for reasons of the authority's."""
    exhibits: tuple[Exhibit, ...] = ()


@dataclass(frozen=True, slots=True)
class Ruling:
    """The outcome, with its reasons in sentences, the deciding one first."""

    outcome: Outcome
    reasons: tuple[str, ...]
    exhibit: Exhibit | None = None
    """What made the claim fall."""
    other: Claim | None = None
    """What preceded it."""


def rule(
    claim: Claim,
    *,
    released: datetime | None,
    disputed: datetime,
    others: Sequence[Claim] = (),
) -> Ruling:
    """Rule on one claim.

    Args:
        claim: The claim.
        released: Since when the suspect is public, by the claimant's word; None if he does not say.
        disputed: When the dispute was entered: nothing can have been released after it.
        others: Other admitted claims that were measured on the same suspect.
    """
    ruling = _by_itself(claim, released, disputed)
    if ruling.outcome is not Outcome.UPHELD:
        return ruling
    standing = [
        other
        for other in others
        if other.owner != claim.owner
        and _by_itself(other, released, disputed).outcome is Outcome.UPHELD
    ]
    earlier = sorted(
        (other for other in standing if other.filed < claim.filed), key=lambda each: each.filed
    )
    if earlier:
        first = earlier[0]
        reason = (
            f"the mark of the key {_short(first.key_id)} of another owner was found on the same "
            f"suspect, and it was filed earlier: {first.filed}, this one {claim.filed}"
        )
        return Ruling(Outcome.PRECEDED, (reason, *ruling.reasons), other=first)
    # What is unheard: the claim itself, or something that is held against it.
    unheard = [
        other
        for other in others
        if other.owner != claim.owner
        and other.filed < claim.filed
        and other.verdict in (None, Verdict.OWNED)
        and _by_itself(other, released, disputed).outcome is Outcome.COULD_NOT_MEASURE
    ]
    if unheard:
        first = min(unheard, key=lambda each: each.filed)
        reason = (
            f"the mark was found on the suspect, but the key {_short(first.key_id)} of another "
            f"owner, filed earlier ({first.filed}, this one {claim.filed}), or what is held "
            "against it, could not be measured within this authority's limits: nothing is upheld "
            "while it is unheard"
        )
        return Ruling(Outcome.COULD_NOT_MEASURE, (reason, *ruling.reasons))
    later = tuple(
        f"the mark of the key {_short(other.key_id)} of another owner was found, too, but it was "
        f"filed later: {other.filed}"
        for other in sorted(standing, key=lambda each: each.filed)
    )
    return Ruling(Outcome.UPHELD, (*ruling.reasons, *later))


def _by_itself(claim: Claim, released: datetime | None, disputed: datetime) -> Ruling:
    """Rule as if there were no other claim."""
    notes = [_set_aside(exhibit, claim) for exhibit in claim.exhibits]
    older = [exhibit for exhibit, note in zip(claim.exhibits, notes, strict=True) if note is None]
    said = [note for note in notes if note is not None]
    if older:
        exhibit = min(older, key=lambda each: each.filed)
        reason = (
            f"the mark is in {exhibit.name}, which the other side had before the key: "
            f"{exhibit.filed}, the key {claim.filed}"
        )
        return Ruling(Outcome.FELL, (reason, *said), exhibit=exhibit)
    uncovered = _not_covered(claim, released, disputed)
    if uncovered is not None:
        return Ruling(Outcome.NOT_COVERED, (uncovered, *said))
    if claim.verdict in (Verdict.COULD_NOT_MEASURE, None):
        return Ruling(Outcome.COULD_NOT_MEASURE, ("the suspect could not be measured", *said))
    if claim.verdict is Verdict.NOT_SHOWN:
        return Ruling(Outcome.NOT_SHOWN, ("the mark was not shown on the suspect", *said))
    if unheard := _unheard(claim):
        reason = (
            f"the mark was found on the suspect, but {unheard.name}, which the other side had "
            f"before the key ({unheard.filed}, the key {claim.filed}), could not be measured "
            "within this authority's limits: nothing is upheld while it is unheard"
        )
        return Ruling(Outcome.COULD_NOT_MEASURE, (reason, *said))
    reason = (
        f"the mark was found on the suspect, which the claimant says is public since "
        f"{_said(released)}; the key was filed before: {claim.filed}"
    )
    return Ruling(Outcome.UPHELD, (reason, *said))


def _set_aside(exhibit: Exhibit, claim: Claim) -> str | None:
    """Return why an exhibit does not count, None if it makes the claim fall."""
    if exhibit.by == claim.owner:
        return f"{exhibit.name} is the claimant's own and says nothing against him"
    if exhibit.verdict is None:
        return f"{exhibit.name} was not measured: it takes more than this authority's limits allow"
    if exhibit.verdict is Verdict.COULD_NOT_MEASURE:
        return f"{exhibit.name} could not be measured under the key"
    if exhibit.verdict is Verdict.NOT_SHOWN:
        return f"the mark was not found in {exhibit.name}"
    if not exhibit.filed < claim.filed:
        return f"{exhibit.name} was filed after the key: {exhibit.filed}, the key {claim.filed}"
    return None


def _unheard(claim: Claim) -> Exhibit | None:
    """Return an older exhibit of the other side's that nobody could look at, if there is one."""
    older = (
        exhibit
        for exhibit in claim.exhibits
        if exhibit.verdict is None and exhibit.by != claim.owner and exhibit.filed < claim.filed
    )
    return min(older, key=lambda each: each.filed, default=None)


def _not_covered(claim: Claim, released: datetime | None, disputed: datetime) -> str | None:
    """Return why the claim does not reach this suspect."""
    if released is None:
        return "it is not said since when the suspect is public"
    if released <= claim.filed.time:
        return (
            f"the suspect is public since {_said(released)}, the key was filed {claim.filed}: "
            "a claim covers only what was released after its filing"
        )
    if released > disputed:
        return (
            f"the suspect is said to be public since {_said(released)}, after the dispute itself "
            f"({_said(disputed)})"
        )
    return None


def _said(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _short(key_id: str) -> str:
    return key_id[:12]
