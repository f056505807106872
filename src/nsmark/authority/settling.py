"""The duty of disputes: everything is measured in children, ruled by dates, and logged once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nsmark.authority.answers import Heard, NamedDeposit, hear, moment_of, name_of
from nsmark.authority.confined_tasks import Measured
from nsmark.authority.draws import DRAWS_FOLDER, Draw
from nsmark.authority.examining import Accused, Examiner, Finding, suspect_identity
from nsmark.authority.fields import format_time, parse_time
from nsmark.authority.jobs import utc_now
from nsmark.authority.priority import Claim, Exhibit, Outcome, rule
from nsmark.authority.priority import Ruling as Decided
from nsmark.authority.records import FiledKey, GivenDefence, OpenedDispute
from nsmark.authority.registry import MAX_ROWS
from nsmark.authority.statements import OtherClaim, Ruling
from nsmark.authority.workbench import JobWatch, Workbench, printable, versions
from nsmark.errors import NotFoundError
from nsmark.verification.decide import Verdict

MAX_OTHER_CLAIMS = 16
"""That are measured in one dispute, the oldest first."""

_ADMITTED = ("admitted", "revealed", "succeeded")
_STANDING = ("upheld", "preceded")
_MAX_REASONS = 64
_MAX_FIGURES = 48
_MAX_EARLIER = 8


def settle_dispute(bench: Workbench, dispute: str, watch: JobWatch) -> str:
    """Measure and rule a dispute; return the outcome.

    Args:
        bench: The authority and its children.
        dispute: Entry id.
        watch: Told how far it is.

    Raises:
        NotYetError: There are too few control models, without which nothing could be shown; or
            another worker is at it.
        NsmarkError: The authority's own trouble: nothing was ruled.
    """
    watch.beat(0.0, "measuring")
    draw = Draw(bench.authority.settings.folder, dispute)
    with draw.alone():
        opened = bench.authority.registry.dispute(dispute)
        if opened.state == "open":
            outcome = _Settling(bench, opened, watch, draw).settle()
        else:
            outcome = opened.outcome or opened.state
    draw.forget()
    return outcome


def give_up_dispute(bench: Workbench, dispute: str, reason: str) -> None:
    """Rule that a dispute could not be measured, because no worker survived it."""
    opened = bench.authority.registry.dispute(dispute)
    if opened.state == "open":
        bench.authority.record_ruling(
            Ruling(
                authority=bench.authority.name,
                dispute=opened.entry_id,
                key_id=opened.key_id,
                outcome="could_not_measure",
                verdict=None,
                reasons=printable([f"the suspect could not be measured: {reason}"]),
                evidence={},
                report_sha256=None,
                randomness=None,
                defence=None,
                other_claims=(),
                opened=opened.time,
                measured=format_time(utc_now()),
                versions=versions(),
            )
        )
    Draw(bench.authority.settings.folder, dispute).forget()


def forget_old_draws(bench: Workbench) -> None:
    """Remove what was kept for disputes that are over."""
    folder = bench.authority.settings.folder
    for each in (folder / DRAWS_FOLDER).glob("*/"):
        try:
            is_open = bench.authority.registry.dispute(each.name).state == "open"
        except NotFoundError:
            is_open = False
        if not is_open:
            Draw(folder, each.name).forget()


@dataclass(frozen=True, slots=True)
class _MeasuredExhibit:
    exhibit: Exhibit
    defence: str
    """Entry id of the answer that names it."""

    measured: Measured | None


@dataclass(frozen=True, slots=True)
class _MeasuredClaim:
    claim: Claim
    filing: FiledKey
    measured: Measured | None
    """None if it was measured in an earlier dispute."""


@dataclass(slots=True)
class _Findings:
    """What was found on the way to a ruling."""

    notes: list[str] = field(default_factory=list)
    """What everybody must know first."""

    later_notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    measured: Measured | None = None
    """The suspect under the claimant's key."""

    exhibits: list[_MeasuredExhibit] = field(default_factory=list)
    others: list[_MeasuredClaim] = field(default_factory=list)


class _Settling:
    """One dispute being settled."""

    def __init__(
        self, bench: Workbench, dispute: OpenedDispute, watch: JobWatch, draw: Draw
    ) -> None:
        self._bench, self._dispute, self._draw = bench, dispute, draw
        self._registry = bench.authority.registry
        self._filing = self._registry.filing_of_key(dispute.key_id)
        self._examiner = Examiner(bench, dispute, watch, draw)
        self._same_suspect = list(self._find_same_suspect())
        # Who said an earlier day before cannot say a later one now.
        said = [dispute.released, *(each.released for each in self._own_earlier())]
        self._released = min(said)

    def settle(self) -> str:
        """Measure what must be, rule, and log it."""
        found = _Findings()
        self._tell_of_earlier(found)
        heard = self._hear(self._dispute.entry_id, self._filing)
        self._tell_of_dates(heard, found)
        found.later_notes += heard.notes
        decided = self._rule(found, Verdict.COULD_NOT_MEASURE)
        if decided.outcome is not Outcome.NOT_COVERED:
            self._bench.require_controls()
            decided = self._measure_all(heard, found)
        self._record(decided, found)
        return str(decided.outcome)

    def _measure_all(self, heard: Heard, found: _Findings) -> Decided:
        self._examiner.expect(1 + len(heard.exhibits))
        suspect = Accused.of_dispute(self._dispute)
        found.measured = self._examiner.measure(self._filing, suspect, "the suspect").measured
        found.exhibits = self._measure_exhibits(self._filing, heard)
        verdict = Verdict(found.measured.verdict)
        decided = self._rule(found, verdict)
        if decided.outcome is Outcome.FELL:
            fell = self._deciding_exhibit(found)
            found.figures |= _figures("exhibit", fell.measured)
        if decided.outcome is not Outcome.UPHELD:
            return decided
        # Only now do others matter: who was first among those who are right.
        found.others = self._other_claims(suspect, heard.keys, found)
        decided = self._rule(found, verdict)
        if decided.outcome is Outcome.PRECEDED:
            self._look_closer(found)
        return decided

    def _rule(self, found: _Findings, verdict: Verdict) -> Decided:
        return rule(
            _claim(self._filing, verdict, found.exhibits),
            released=parse_time(self._released),
            disputed=parse_time(self._dispute.time),
            others=[each.claim for each in found.others],
        )

    # --- What is held against a claim. ---

    def _hear(self, dispute: str, filing: FiledKey) -> Heard:
        return hear(
            self._answers(dispute),
            filing,
            self._registry,
            self._bench.authority.contents,
            max_exhibits=self._bench.settings.max_exhibits,
        )

    def _answers(self, dispute: str) -> Iterator[GivenDefence]:
        after = -1
        while page := self._registry.defences(dispute, after=after):
            yield from page
            after = page[-1].index

    def _measure_exhibits(self, filing: FiledKey, heard: Heard) -> list[_MeasuredExhibit]:
        """Measure a key on deposits; what was not, or not to the end, has no verdict."""
        found = []
        for named in heard.exhibits:
            name = name_of(named.deposit)
            finding = self._examiner.measure(filing, Accused.of_deposit(named.deposit), name)
            verdict = None if finding.is_ended else Verdict(finding.measured.verdict)
            found.append(_exhibit(named, verdict, finding))
        return found + [_exhibit(named, None, None) for named in heard.unheard]

    def _deciding_exhibit(self, found: _Findings) -> _MeasuredExhibit:
        fell = [each for each in found.exhibits if _makes_fall(each.exhibit, self._filing)]
        return min(fell, key=lambda each: each.exhibit.filed)

    # --- What was said before. ---

    def _find_same_suspect(self) -> Iterator[OpenedDispute]:
        """Yield other disputes about the same suspect, newest first."""
        wanted, before = suspect_identity(self._dispute.suspect), None
        while page := self._registry.disputes(before=before, limit=MAX_ROWS):
            for dispute in page:
                is_other = dispute.entry_id != self._dispute.entry_id
                if is_other and suspect_identity(dispute.suspect) == wanted:
                    yield dispute
            before = page[-1].index

    def _own_earlier(self) -> list[OpenedDispute]:
        """Return the claimant's earlier disputes about the same suspect, oldest first."""
        found = [
            dispute
            for dispute in self._same_suspect
            if dispute.fingerprint == self._dispute.fingerprint
            and dispute.index < self._dispute.index
        ]
        return found[::-1]

    def _tell_of_earlier(self, found: _Findings) -> None:
        """Say how often it was tried: who tries often enough succeeds some day by chance."""
        earlier = self._own_earlier()
        found.figures["earlier_disputes"] = len(earlier)
        if earlier:
            outcomes = [each.outcome or each.state for each in earlier[-_MAX_EARLIER:]]
            found.notes.append(
                f"the claimant has disputed this suspect {len(earlier)} times before; the latest "
                f"came to: {', '.join(outcomes)}"
            )
        if self._released != self._dispute.released:
            found.notes.append(
                f"the claimant says that the suspect is public since {self._dispute.released}, but "
                f"said {self._released} before: that counts"
            )

    def _tell_of_dates(self, heard: Heard, found: _Findings) -> None:
        """Say that the day of the release is contested: only people can look into that."""
        found.figures["release_contested"] = bool(heard.contested)
        for answer, released in heard.contested:
            is_before = parse_time(released) <= parse_time(self._filing.time)
            meaning = "before the key was filed" if is_before else "after the key was filed"
            found.notes.append(
                f"the answer {answer[:12]} says that the suspect is public since {released}, "
                f"{meaning}; the claimant says {self._released}, and this authority knows neither"
            )

    # --- Who else claims it. ---

    def _other_claims(
        self, suspect: Accused, named: list[FiledKey], found: _Findings
    ) -> list[_MeasuredClaim]:
        """Find other owners' keys on the same suspect."""
        known: dict[str, _MeasuredClaim] = {}
        pending: dict[str, tuple[FiledKey, OpenedDispute | None]] = {
            filing.key_id: (filing, None) for filing in named
        }
        for dispute in self._same_suspect:
            filing = self._registry.filing_of_key(dispute.key_id)
            if filing.state not in _ADMITTED:
                continue  # withdrawn by its owner
            is_standing = dispute.outcome in _STANDING
            if is_standing and suspect.suspect.content_sha256 is not None:
                # The very bytes were measured then, and what was held against it did not make it
                # fall. An endpoint is asked anew: it may have changed since.
                claim = _claim(filing, Verdict.OWNED)
                known[filing.key_id] = _MeasuredClaim(claim, filing, None)
            elif is_standing or dispute.state == "open":
                pending[filing.key_id] = (filing, dispute)
        others = [
            (filing, dispute)
            for filing, dispute in pending.values()
            if filing.key_id not in known and filing.fingerprint != self._filing.fingerprint
        ]
        others.sort(key=lambda each: each[0].index)
        if len(others) > MAX_OTHER_CLAIMS:
            found.later_notes.append(
                f"of {len(others)} other claims the {MAX_OTHER_CLAIMS} oldest were looked at"
            )
        measured = others[:MAX_OTHER_CLAIMS]
        self._examiner.expect(len(measured))
        return [*known.values(), *(self._measure_other(suspect, *each) for each in measured)]

    def _measure_other(
        self, suspect: Accused, filing: FiledKey, dispute: OpenedDispute | None
    ) -> _MeasuredClaim:
        """Measure another key on the suspect, and what is held against it in its own dispute."""
        label = f"the suspect under the key {filing.key_id[:12]}"
        measured = self._examiner.measure(filing, suspect, label).measured
        exhibits: list[_MeasuredExhibit] = []
        if measured.verdict == "owned" and dispute is not None:
            heard = self._hear(dispute.entry_id, filing)
            self._examiner.expect(len(heard.exhibits))
            exhibits = self._measure_exhibits(filing, heard)
        claim = _claim(filing, Verdict(measured.verdict), exhibits)
        return _MeasuredClaim(claim, filing, measured)

    def _look_closer(self, found: _Findings) -> None:
        """Look for the earlier mark in the claimant's own model.

        If it is there, his model comes from the other's. If it is not, the suspect may only answer
        each key as it likes to hear: people must look into that.
        """
        earlier = [
            each
            for each in found.others
            if each.claim.verdict is Verdict.OWNED and each.claim.filed < moment_of(self._filing)
        ]
        first = min(earlier, key=lambda each: each.claim.filed)
        found.figures |= _figures("earlier_key", first.measured)
        name = f"the earlier mark of the key {first.filing.key_id[:12]}"
        place = "the claimant's own model"
        model = self._examiner.owner_model(self._filing)
        if model is None:
            found.notes.append(f"whether {name} is in {place} is not known: he did not deposit it")
            return
        finding = self._examiner.measure(
            first.filing, Accused.of_deposit(model), "the claimant's model under the earlier key"
        )
        said = {
            "owned": f"{name} is in {place}, too",
            "not_shown": f"{name} was not found in {place}: the suspect bears two marks that have "
            "nothing to do with each other, or answers each key as it likes to hear",
            "could_not_measure": f"whether {name} is in {place} could not be measured",
        }
        found.notes.append(said[finding.measured.verdict])
        found.figures["earlier_key_on_claimants_model"] = finding.measured.verdict

    # --- The ruling. ---

    def _record(self, decided: Decided, found: _Findings) -> None:
        measured = found.measured
        said = [*decided.reasons[:1], *found.notes]
        evidence: dict[str, Any] = {"control_set": self._examiner.control_set, **found.figures}
        report = None
        if measured is not None:
            said += [*measured.reasons, *measured.notes]
            evidence |= measured.figures | {"randomness_used": self._examiner.seed}
            report = measured.html.encode("utf-8") or None
        said += [*decided.reasons[1:], *found.later_notes]
        is_fallen = decided.outcome is Outcome.FELL
        self._bench.authority.record_ruling(
            Ruling(
                authority=self._bench.authority.name,
                dispute=self._dispute.entry_id,
                key_id=self._dispute.key_id,
                outcome=decided.outcome.value,
                verdict=None if measured is None else measured.verdict,
                reasons=printable(said[:_MAX_REASONS]),
                evidence=evidence,
                report_sha256=None if report is None else hashlib.sha256(report).hexdigest(),
                randomness=None if measured is None else self._draw.randomness().hex(),
                defence=self._deciding_exhibit(found).defence if is_fallen else None,
                other_claims=tuple(
                    OtherClaim(
                        filing=each.filing.entry_id,
                        key_id=each.filing.key_id,
                        owner=each.filing.owner,
                        time=each.filing.time,
                    )
                    for each in found.others
                    if each.claim.verdict is Verdict.OWNED
                ),
                opened=self._dispute.time,
                measured=format_time(utc_now()),
                versions=versions(),
            ),
            report,
        )


def _claim(
    filing: FiledKey, verdict: Verdict, exhibits: list[_MeasuredExhibit] | None = None
) -> Claim:
    return Claim(
        key_id=filing.key_id,
        owner=filing.fingerprint,
        filed=moment_of(filing),
        verdict=verdict,
        exhibits=tuple(each.exhibit for each in exhibits or ()),
    )


def _exhibit(
    named: NamedDeposit, verdict: Verdict | None, finding: Finding | None
) -> _MeasuredExhibit:
    exhibit = Exhibit(
        name=name_of(named.deposit),
        filed=named.moment,
        by=named.deposit.fingerprint,
        verdict=verdict,
    )
    return _MeasuredExhibit(exhibit, named.defence, None if finding is None else finding.measured)


def _makes_fall(exhibit: Exhibit, filing: FiledKey) -> bool:
    is_older = exhibit.filed < moment_of(filing)
    return exhibit.verdict is Verdict.OWNED and is_older and exhibit.by != filing.fingerprint


def _figures(prefix: str, measured: Measured | None) -> dict[str, Any]:
    """Return the figures of what decided, beside those of the suspect."""
    if measured is None:
        return {}
    figures = {"verdict": measured.verdict, **measured.figures}
    return {f"{prefix}_{name}": value for name, value in list(figures.items())[:_MAX_FIGURES]}
