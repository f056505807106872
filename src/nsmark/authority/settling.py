"""The duty of disputes: everything is measured in children, ruled by dates, and logged once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsmark.authority.answers import Heard, NamedDeposit, hear, in_turns, moment_of, name_of
from nsmark.authority.confined_tasks import Measured
from nsmark.authority.draws import DRAWS_FOLDER, Draw
from nsmark.authority.examining import Accused, Examiner, suspect_identity
from nsmark.authority.fields import format_time, parse_time
from nsmark.authority.jobs import utc_now
from nsmark.authority.priority import Claim, Exhibit, Outcome, rule
from nsmark.authority.priority import Ruling as Decided
from nsmark.authority.records import (
    ADMITTED,
    DepositedThing,
    FiledKey,
    GivenDefence,
    OpenedDispute,
)
from nsmark.authority.registry import MAX_ROWS, every_row
from nsmark.authority.statements import OtherClaim, Ruling, read_statement
from nsmark.authority.workbench import JobWatch, Workbench, printable, versions
from nsmark.errors import NotFoundError
from nsmark.verification.verdict import Verdict

MAX_LATER_CLAIMS = 8
"""Of other owners that are measured, too, although they decide nothing."""

_STANDING = ("upheld", "preceded")
_MAX_REASONS = 64
_MAX_IDLE_REASONS = 16
_MAX_FIGURES = 48
_MAX_NAME = 256
_MAX_EARLIER = 8
_MAX_OTHERS_SHOWN = 32


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
    named: NamedDeposit
    measured: Measured | None


@dataclass(frozen=True, slots=True)
class _MeasuredClaim:
    claim: Claim
    filing: FiledKey
    measured: Measured | None
    """None if it was not measured now."""


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
    defence: str | None = None
    """Entry id of the answer that made the claim fall."""


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
        heard = self._hear(self._filing, dispute=self._dispute.entry_id)
        self._tell_of_dates(heard, found)
        found.later_notes += heard.notes
        decided = self._fell_before(found) or self._rule(found, Verdict.COULD_NOT_MEASURE)
        if decided.outcome not in (Outcome.NOT_COVERED, Outcome.FELL):
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
            (fell,) = (each for each in found.exhibits if each.exhibit is decided.exhibit)
            found.figures |= _figures("exhibit", fell.measured)
            found.defence = fell.named.defence
        if decided.outcome is not Outcome.UPHELD:
            return decided
        # Only now do others matter: who was first among those who are right.
        found.others = self._other_claims(suspect, heard.keys, found)
        decided = self._rule(found, verdict)
        if decided.outcome is Outcome.PRECEDED:
            (first,) = (each for each in found.others if each.claim is decided.other)
            self._look_closer(first, found)
        return decided

    def _rule(self, found: _Findings, verdict: Verdict) -> Decided:
        return rule(
            _claim(self._filing, verdict, found.exhibits),
            released=parse_time(self._released),
            disputed=parse_time(self._dispute.time),
            others=[each.claim for each in found.others],
        )

    # --- What is held against a claim. ---

    def _hear(
        self,
        filing: FiledKey,
        *,
        dispute: str | None = None,
        unnamed: Iterable[DepositedThing] = (),
    ) -> Heard:
        return hear(
            self._answers(filing),
            filing,
            self._registry,
            self._bench.authority.contents,
            max_exhibits=self._bench.settings.max_exhibits,
            dispute=dispute,
            unnamed=unnamed,
        )

    def _answers(self, filing: FiledKey) -> Iterator[GivenDefence]:
        """Yield the answers to all disputes under a key, also to those that were withdrawn."""
        pages = every_row(lambda before: self._disputes_before(before, filing.key_id))
        for dispute in reversed(list(pages)):
            after = -1
            while page := self._registry.defences(dispute.entry_id, after=after):
                yield from page
                after = page[-1].index

    def _measure_exhibits(self, filing: FiledKey, heard: Heard) -> list[_MeasuredExhibit]:
        """Measure a key on deposits, until one makes its claim fall.

        What was not measured, or not to the end, has no verdict.
        """
        found = []
        for named in heard.exhibits:
            accused = Accused.of_deposit(named.deposit)
            finding = self._examiner.measure(filing, accused, name_of(named.deposit))
            verdict = None if finding.is_ended else Verdict(finding.measured.verdict)
            found.append(_MeasuredExhibit(_exhibit(named, verdict), named, finding.measured))
            if verdict is Verdict.OWNED:
                return found
        unheard = (_MeasuredExhibit(_exhibit(named, None), named, None) for named in heard.unheard)
        return [*found, *unheard]

    # --- What was said before. ---

    def _disputes_before(self, before: int | None, key_id: str | None) -> list[OpenedDispute]:
        return self._registry.disputes(key_id=key_id, before=before, limit=MAX_ROWS)

    def _find_same_suspect(self) -> Iterator[OpenedDispute]:
        """Yield other disputes about the same suspect, newest first."""
        wanted = suspect_identity(self._dispute.suspect)
        for dispute in every_row(lambda before: self._disputes_before(before, None)):
            is_other = dispute.entry_id != self._dispute.entry_id
            if is_other and suspect_identity(dispute.suspect) == wanted:
                yield dispute

    def _own_earlier(self) -> list[OpenedDispute]:
        """Return the claimant's earlier disputes about the same suspect, oldest first."""
        found = [
            dispute
            for dispute in self._same_suspect
            if dispute.fingerprint == self._dispute.fingerprint
            and dispute.index < self._dispute.index
        ]
        return found[::-1]

    def _fell_before(self, found: _Findings) -> Decided | None:
        """Return the ruling on a claim that fell while this dispute was open."""
        fallen = self._registry.fallen(self._filing)
        if fallen is None:
            return None
        entry = self._bench.authority.log.entry(fallen.ruling or "").entry
        ruling = read_statement(entry)
        found.defence = ruling.defence if isinstance(ruling, Ruling) else None
        reason = f"the claim fell in the dispute {fallen.entry_id[:12]}: see its ruling"
        return Decided(Outcome.FELL, (reason,))

    def _tell_of_earlier(self, found: _Findings) -> None:
        """Say how often it was tried: who tries often enough succeeds some day by chance."""
        earlier = self._own_earlier()
        key_id = self._filing.key_id
        count = sum(1 for _ in every_row(lambda before: self._disputes_before(before, key_id)))
        found.figures["earlier_disputes"] = len(earlier)
        found.figures["disputes_with_this_key"] = count
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
        """Find other owners' keys on the same suspect.

        Those that are older decide; they are measured first, their owners take turns, and those
        that are too many have no verdict. Of the later ones some are looked at, to be shown.
        """
        known: set[str] = set()
        wanted = {filing.key_id: filing for filing in named}
        for dispute in self._same_suspect:
            filing = self._registry.filing_of_key(dispute.key_id)
            is_standing = dispute.outcome in _STANDING
            if not self._stands(filing) or not (is_standing or dispute.state == "open"):
                continue
            if is_standing and suspect.suspect.content_sha256 is not None:
                # The very bytes were measured then. An endpoint is asked anew: it may have changed.
                known.add(filing.key_id)
            wanted[filing.key_id] = filing
        ours = moment_of(self._filing)
        others = [each for each in wanted.values() if each.fingerprint != self._filing.fingerprint]
        older = in_turns(each for each in others if moment_of(each) < ours)
        later = sorted((each for each in others if moment_of(each) > ours), key=moment_of)
        most = self._bench.settings.max_exhibits
        if len(later) > MAX_LATER_CLAIMS:
            found.later_notes.append(
                f"of {len(later)} later claims the first {MAX_LATER_CLAIMS} were looked at"
            )
        measured = [*older[:most], *later[:MAX_LATER_CLAIMS]]
        self._examiner.expect(len(measured))
        return [
            *(
                self._measure_other(suspect, each, is_known=each.key_id in known)
                for each in measured
            ),
            *(_MeasuredClaim(_claim(each, None), each, None) for each in older[most:]),
        ]

    def _stands(self, filing: FiledKey) -> bool:
        """Return whether a claim was neither withdrawn nor fell."""
        return filing.state in ADMITTED and self._registry.fallen(filing) is None

    def _measure_other(self, suspect: Accused, filing: FiledKey, is_known: bool) -> _MeasuredClaim:
        """Measure another key on the suspect, unless it was before, and what is held against it."""
        measured, verdict = None, Verdict.OWNED
        if not is_known:
            label = f"the suspect under the key {filing.key_id[:12]}"
            finding = self._examiner.measure(filing, suspect, label)
            if finding.is_ended:
                return _MeasuredClaim(_claim(filing, None), filing, None)
            measured, verdict = finding.measured, Verdict(finding.measured.verdict)
        exhibits: list[_MeasuredExhibit] = []
        if verdict is Verdict.OWNED and moment_of(filing) < moment_of(self._filing):
            # The claimant need not have answered: he may not know of this claim.
            heard = self._hear(filing, unnamed=self._examiner.deposits_of(self._filing))
            self._examiner.expect(len(heard.exhibits))
            exhibits = self._measure_exhibits(filing, heard)
        return _MeasuredClaim(_claim(filing, verdict, exhibits), filing, measured)

    def _look_closer(self, first: _MeasuredClaim, found: _Findings) -> None:
        """Look for the earlier mark in the claimant's own model.

        If it is there, his model comes from the other's. If it is not, the suspect may only answer
        each key as it likes to hear: people must look into that.
        """
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
        evidence: dict[str, Any] = {}
        said = [*decided.reasons[:1], *found.notes]
        report = None
        if measured is not None:
            said += [*measured.reasons, *measured.notes]
            evidence |= measured.figures | {"randomness_used": self._examiner.seed}
            report = measured.html.encode("utf-8") or None
        # Last, so that nothing that a child says can pass for it.
        evidence |= found.figures | {"control_set": self._examiner.control_set}
        claims, left_out = self._claims_to_show(found)
        if left_out:
            found.later_notes.append(f"{left_out} more claims of the same owners are not listed")
        said += [*found.later_notes, *_some(decided.reasons[1:])]
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
                defence=found.defence,
                other_claims=claims,
                opened=self._dispute.time,
                measured=format_time(utc_now()),
                versions=versions(),
            ),
            report,
        )

    def _claims_to_show(self, found: _Findings) -> tuple[tuple[OtherClaim, ...], int]:
        """Return other claims that were found, of each owner the oldest; and how many are left."""
        owned = [each for each in found.others if each.claim.verdict is Verdict.OWNED]
        first: dict[str, FiledKey] = {}
        for each in sorted(owned, key=lambda each: each.claim.filed):
            first.setdefault(each.filing.fingerprint, each.filing)
        shown = tuple(
            OtherClaim(
                filing=filing.entry_id,
                key_id=filing.key_id,
                owner=filing.owner,
                time=filing.time,
            )
            for filing in list(first.values())[:_MAX_OTHERS_SHOWN]
        )
        return shown, len(owned) - len(shown)


def _claim(
    filing: FiledKey, verdict: Verdict | None, exhibits: list[_MeasuredExhibit] | None = None
) -> Claim:
    return Claim(
        key_id=filing.key_id,
        owner=filing.fingerprint,
        filed=moment_of(filing),
        verdict=verdict,
        exhibits=tuple(each.exhibit for each in exhibits or ()),
    )


def _exhibit(named: NamedDeposit, verdict: Verdict | None) -> Exhibit:
    return Exhibit(
        name=name_of(named.deposit),
        filed=named.moment,
        by=named.deposit.fingerprint,
        verdict=verdict,
    )


def _figures(prefix: str, measured: Measured | None) -> dict[str, Any]:
    """Return the figures of what decided, beside those of the suspect."""
    if measured is None:
        return {}
    figures = {"verdict": measured.verdict, **measured.figures}
    return {
        f"{prefix}_{name}"[:_MAX_NAME]: value
        for name, value in list(figures.items())[:_MAX_FIGURES]
    }


def _some(reasons: Sequence[str]) -> list[str]:
    """Return reasons that decide nothing, not too many."""
    left_out = len(reasons) - _MAX_IDLE_REASONS
    if left_out <= 0:
        return list(reasons)
    return [*reasons[:_MAX_IDLE_REASONS], f"and {left_out} more of this kind"]
