"""The duty of disputes: everything is measured in children, ruled by dates, and logged once.

Randomness is drawn when the work begins, after the dispute was logged, and kept until the ruling:
a worker that is killed and started again goes on with the same, so nobody can try again until the
texts suit him. It is published with the ruling; whoever has the dispute's entry can check it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nsmark.authority.confined_tasks import Measured, MeasureRequest, measure_suspect
from nsmark.authority.confinement import EndedError
from nsmark.authority.fields import format_time, parse_time
from nsmark.authority.jobs import utc_now
from nsmark.authority.priority import Claim, Exhibit, Moment, Outcome, rule
from nsmark.authority.priority import Ruling as Decided
from nsmark.authority.records import DepositedThing, FiledKey, GivenDefence, OpenedDispute
from nsmark.authority.registry import MAX_ROWS
from nsmark.authority.statements import OtherClaim, Ruling, Suspect
from nsmark.authority.workbench import (
    JobWatch,
    NotYetError,
    Workbench,
    key_of,
    printable,
    versions,
)
from nsmark.errors import AuthorityError, NotFoundError
from nsmark.files import read_bounded, write_atomic, write_errors
from nsmark.verification.decide import Verdict

if sys.platform != "win32":
    import fcntl

DRAWS_FOLDER = "measuring"
"""In the authority's folder: what is kept from the beginning of a measurement to its ruling."""

MAX_EXHIBITS = 16
"""That are measured in one dispute, the oldest first."""

MAX_OTHER_CLAIMS = 16
"""That are measured in one dispute, the oldest first."""

_RANDOM_BYTES = 32
_ADMITTED = ("admitted", "revealed", "succeeded")
_STANDING = ("upheld", "preceded")
_MAX_REASONS = 64


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
    with _alone(_draw_folder(bench, dispute)):
        opened = bench.authority.registry.dispute(dispute)
        if opened.state == "open":
            return _Settling(bench, opened, watch).settle()
    forget_draw(bench, dispute)
    return opened.outcome or opened.state


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
    forget_draw(bench, dispute)


def forget_draw(bench: Workbench, dispute: str) -> None:
    """Remove what was kept for a measurement."""
    shutil.rmtree(_draw_folder(bench, dispute), ignore_errors=True)


def forget_old_draws(bench: Workbench) -> None:
    """Remove what was kept for disputes that are over."""
    for folder in (bench.authority.settings.folder / DRAWS_FOLDER).glob("*/"):
        try:
            is_open = bench.authority.registry.dispute(folder.name).state == "open"
        except NotFoundError:
            is_open = False
        if not is_open:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Accused:
    """Something that a key is measured on: a suspect, or a respondent's deposit."""

    suspect: Suspect
    name: str
    """Of an upload, in reports."""


@dataclass(slots=True)
class _Findings:
    """What was found on the way to a ruling."""

    measured: Measured | None = None
    """The suspect under the claimant's key."""

    notes: list[str] = field(default_factory=list)
    exhibits: list[tuple[Exhibit, str]] = field(default_factory=list)
    """With the entry id of the defence that names it."""

    others: list[tuple[Claim, FiledKey]] = field(default_factory=list)


class _Settling:
    """One dispute being settled."""

    def __init__(self, bench: Workbench, dispute: OpenedDispute, watch: JobWatch) -> None:
        self._bench, self._dispute, self._watch = bench, dispute, watch
        self._registry = bench.authority.registry
        self._filing = self._registry.filing_of_key(dispute.key_id)
        self._control_set = bench.control_set()
        self._drawn = _draw(bench, dispute.entry_id)
        entry = bench.authority.log.entry(dispute.entry_id).entry
        self._seed = hashlib.sha256(entry + self._drawn).hexdigest()
        self._steps, self._num_steps = 0, 1

    def settle(self) -> str:
        """Measure what must be, rule, and log it."""
        found = _Findings()
        decided = self._rule(found, Verdict.COULD_NOT_MEASURE)
        if decided.outcome is not Outcome.NOT_COVERED:
            self._bench.require_controls()
            decided = self._measure_all(found)
        self._record(decided, found)
        forget_draw(self._bench, self._dispute.entry_id)
        return str(decided.outcome)

    def _measure_all(self, found: _Findings) -> Decided:
        defences = self._registry.defences(self._dispute.entry_id)
        deposits, keys = self._evidence(defences, self._filing, found.notes)
        self._num_steps = 1 + len(deposits)
        suspect = _Accused(self._dispute.suspect, _upload_name(self._dispute.suspect))
        measured = self._measure(self._filing, suspect, "the suspect")
        found.measured = measured
        found.exhibits = self._exhibits(self._filing, deposits)
        decided = self._rule(found, Verdict(measured.verdict))
        if decided.outcome is not Outcome.UPHELD:
            return decided
        # Only now do others matter: who was first among those who are right.
        found.others = self._other_claims(suspect, keys, found.notes)
        return self._rule(found, Verdict(measured.verdict))

    def _rule(self, found: _Findings, verdict: Verdict) -> Decided:
        exhibits = tuple(exhibit for exhibit, _ in found.exhibits)
        return rule(
            _claim(self._filing, verdict, exhibits),
            released=parse_time(self._dispute.released),
            disputed=parse_time(self._dispute.time),
            others=[claim for claim, _ in found.others],
        )

    # --- What is held against a claim. ---

    def _evidence(
        self, defences: list[GivenDefence], filing: FiledKey, notes: list[str]
    ) -> tuple[list[tuple[DepositedThing, str]], list[FiledKey]]:
        """Return what answers name: deposits older than the key, with the answers; and keys."""
        deposits: dict[str, tuple[DepositedThing, str]] = {}
        keys: dict[str, FiledKey] = {}
        for defence in defences:
            if defence.evidence is None:
                continue
            try:
                deposit = self._registry.deposit(defence.evidence)
            except NotFoundError:
                filed = self._registry.filing(defence.evidence)
                if filed.state in _ADMITTED:
                    keys[filed.entry_id] = filed
                else:
                    notes.append(
                        f"the key {filed.key_id[:12]} was named in an answer, but is not "
                        f"admitted: its filing is {filed.state!r}"
                    )
                continue
            name = _deposit_name(deposit)
            if deposit.index > filing.index:
                notes.append(f"{name} was filed after the key, and was not measured")
            elif not self._bench.authority.contents.has(
                deposit.content_sha256, is_folder=deposit.what == "model"
            ):
                notes.append(f"{name} could not be measured: its content was not handed over")
            else:
                deposits.setdefault(deposit.entry_id, (deposit, defence.entry_id))
        oldest = sorted(deposits.values(), key=lambda each: each[0].index)
        if len(oldest) > MAX_EXHIBITS:
            notes.append(f"of {len(oldest)} deposits the {MAX_EXHIBITS} oldest were measured")
        return oldest[:MAX_EXHIBITS], list(keys.values())

    def _exhibits(
        self, filing: FiledKey, deposits: list[tuple[DepositedThing, str]]
    ) -> list[tuple[Exhibit, str]]:
        """Measure a key on deposits."""
        found = []
        for deposit, defence in deposits:
            name = _deposit_name(deposit)
            uploaded = Suspect(
                kind=deposit.what,
                content_sha256=deposit.content_sha256,
                content_bytes=deposit.content_bytes,
            )
            measured = self._measure(filing, _Accused(uploaded, name), name)
            exhibit = Exhibit(
                name=name,
                filed=_moment(deposit),
                by=deposit.fingerprint,
                verdict=Verdict(measured.verdict),
            )
            found.append((exhibit, defence))
        return found

    # --- Who else claims it. ---

    def _other_claims(
        self, suspect: _Accused, named: list[FiledKey], notes: list[str]
    ) -> list[tuple[Claim, FiledKey]]:
        """Find other owners' keys on the same suspect."""
        found: list[tuple[Claim, FiledKey]] = []
        pending: dict[str, tuple[FiledKey, OpenedDispute | None]] = {
            filing.key_id: (filing, None) for filing in named
        }
        for dispute in self._same_suspect():
            filing = self._registry.filing_of_key(dispute.key_id)
            if filing.state not in _ADMITTED:
                continue  # withdrawn by its owner
            if dispute.state == "open":
                pending[filing.key_id] = (filing, dispute)
            elif dispute.outcome in _STANDING:
                # It was measured then, and what was held against it did not make it fall.
                found.append((_claim(filing, Verdict.OWNED), filing))
        known = {filing.key_id for _, filing in found}
        others = [
            (filing, dispute)
            for filing, dispute in pending.values()
            if filing.key_id not in known and filing.fingerprint != self._filing.fingerprint
        ]
        others.sort(key=lambda each: each[0].index)
        if len(others) > MAX_OTHER_CLAIMS:
            notes.append(
                f"of {len(others)} other claims the {MAX_OTHER_CLAIMS} oldest were looked at"
            )
        self._num_steps += len(others[:MAX_OTHER_CLAIMS])
        for filing, pending_in in others[:MAX_OTHER_CLAIMS]:
            name = f"the key {filing.key_id[:12]}"
            measured = self._measure(filing, suspect, f"the suspect under {name}")
            exhibits: list[tuple[Exhibit, str]] = []
            if measured.verdict == "owned" and pending_in is not None:
                defences = self._registry.defences(pending_in.entry_id)
                deposits, _ = self._evidence(defences, filing, [])
                self._num_steps += len(deposits)
                exhibits = self._exhibits(filing, deposits)
            claim = _claim(filing, Verdict(measured.verdict), tuple(each for each, _ in exhibits))
            found.append((claim, filing))
        return found

    def _same_suspect(self) -> Iterator[OpenedDispute]:
        """Yield other owners' disputes about the same suspect, newest first."""
        wanted, before = suspect_identity(self._dispute.suspect), None
        while page := self._registry.disputes(before=before, limit=MAX_ROWS):
            for dispute in page:
                is_other = dispute.fingerprint != self._dispute.fingerprint
                if is_other and suspect_identity(dispute.suspect) == wanted:
                    yield dispute
            before = page[-1].index

    # --- One measurement. ---

    def _measure(self, filing: FiledKey, accused: _Accused, label: str) -> Measured:
        """Measure in a child; one that takes too much, or breaks down, could not measure."""
        start = self._steps / self._num_steps
        self._steps += 1
        on_tick = self._watch.between(start, self._steps / self._num_steps, f"measuring {label}")
        content = self._bench.key_file(filing)
        key = key_of(content)
        if key is None:
            raise AuthorityError(
                f"the filed key {filing.key_id[:12]} cannot be read any more",
                "restore the authority's content from a backup",
            )
        with self._bench.work_folder() as folder:
            path = self._unseal(accused.suspect, folder / "suspect")
            owner_model = self._unseal_owner_model(filing, key.model_digest, folder / "owner")
            common, files = self._bench.request(key)
            there = accused.suspect
            cache = _draw_folder(self._bench, self._dispute.entry_id) / "answers"
            interfaces: dict[str | None, Any] = {
                "embeddings": "openai",
                "completions": "completions",
            }
            request = MeasureRequest(
                **dict(common),
                suspect=there.kind,
                name=accused.name,
                path=None if path is None else str(path),
                interface=interfaces.get(there.interface),
                url=there.url,
                model=there.model,
                owner_model=None if owner_model is None else str(owner_model),
                randomness=self._seed,
                allowed=self._bench.settings.allowed,
                cache=str(cache) if there.kind == "endpoint" else None,
                seconds=self._bench.settings.suspect_seconds,
            )
            try:
                return self._bench.run(
                    measure_suspect, request, [content, *files], on_tick, Measured
                )
            except EndedError as error:
                return Measured(
                    verdict="could_not_measure",
                    reasons=(f"the measurement was ended: {error}",),
                    notes=(),
                    figures={},
                    html="",
                )

    def _unseal(self, suspect: Suspect, path: Path) -> Path | None:
        if suspect.content_sha256 is None:
            return None
        contents = self._bench.authority.contents
        if suspect.kind == "model":
            contents.copy_folder(suspect.content_sha256, path)
        else:
            path.mkdir(mode=0o700)
            path = path / "recorded.safetensors"
            contents.copy_file(suspect.content_sha256, path)
        return path

    def _unseal_owner_model(self, filing: FiledKey, model_digest: str, path: Path) -> Path | None:
        """Unseal the marked model, if the key's owner deposited it with its content."""
        contents = self._bench.authority.contents
        for deposit in self._registry.deposits(
            fingerprint=filing.fingerprint, model_digest=model_digest
        ):
            if contents.has(deposit.content_sha256, is_folder=True):
                contents.copy_folder(deposit.content_sha256, path)
                return path
        return None

    # --- The ruling. ---

    def _record(self, decided: Decided, found: _Findings) -> None:
        measured = found.measured
        said = [*decided.reasons, *found.notes]
        evidence: dict[str, Any] = {"control_set": self._control_set}
        report = None
        if measured is not None:
            said += [*measured.reasons, *measured.notes]
            evidence |= measured.figures | {"randomness_used": self._seed}
            report = measured.html.encode("utf-8") or None
        fell = [each for each in found.exhibits if _makes_fall(each[0], self._filing)]
        fell.sort(key=lambda each: each[0].filed)
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
                randomness=None if measured is None else self._drawn.hex(),
                defence=fell[0][1] if decided.outcome is Outcome.FELL else None,
                other_claims=tuple(
                    OtherClaim(
                        filing=filing.entry_id,
                        key_id=filing.key_id,
                        owner=filing.owner,
                        time=filing.time,
                    )
                    for claim, filing in found.others
                    if claim.verdict is Verdict.OWNED
                ),
                opened=self._dispute.time,
                measured=format_time(utc_now()),
                versions=versions(),
            ),
            report,
        )


def suspect_identity(suspect: Suspect) -> tuple[str, ...]:
    """Return what is the same for two disputes about the same suspect."""
    if suspect.content_sha256 is not None:
        return (suspect.kind, suspect.content_sha256)
    try:
        parts = urlsplit(suspect.url or "")
        is_usual = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
        port = "" if is_usual else str(parts.port)
    except ValueError:
        return ("endpoint", suspect.url or "", suspect.model or "")
    path = parts.path.rstrip("/")
    # The scheme and the interface are only ways to the same model.
    return ("endpoint", parts.hostname or "", port, path, suspect.model or "")


def _claim(filing: FiledKey, verdict: Verdict, exhibits: tuple[Exhibit, ...] = ()) -> Claim:
    return Claim(
        key_id=filing.key_id,
        owner=filing.fingerprint,
        filed=_moment(filing),
        verdict=verdict,
        exhibits=exhibits,
    )


def _makes_fall(exhibit: Exhibit, filing: FiledKey) -> bool:
    is_older = exhibit.filed < _moment(filing)
    return exhibit.verdict is Verdict.OWNED and is_older and exhibit.by != filing.fingerprint


def _moment(entry: FiledKey | DepositedThing) -> Moment:
    return Moment(parse_time(entry.time), entry.index)


def _upload_name(suspect: Suspect) -> str:
    what = "recorded outputs" if suspect.kind == "recorded" else "uploaded model"
    return f"{what} {(suspect.content_sha256 or '')[:12]}".strip()


def _deposit_name(deposit: DepositedThing) -> str:
    return f"the deposit {deposit.entry_id[:12]}"


def _draw_folder(bench: Workbench, dispute: str) -> Path:
    return bench.authority.settings.folder / DRAWS_FOLDER / dispute


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others from measuring the same, such as a worker who is only slow to be heard of.

    Raises:
        NotYetError: Somebody is at it.
    """
    with write_errors(folder, "see whether the authority's disk is there and has space"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotYetError("another worker is measuring it") from None
        yield
    finally:
        os.close(lock)


def _draw(bench: Workbench, dispute: str) -> bytes:
    """Return the random bytes of a dispute; drawn when they are asked for the first time."""
    path = _draw_folder(bench, dispute) / "randomness"
    if not path.exists():
        write_atomic(path, secrets.token_bytes(_RANDOM_BYTES), 0o600)
    drawn = read_bounded(path, _RANDOM_BYTES, "randomness")
    if len(drawn) != _RANDOM_BYTES:
        raise AuthorityError(f"{path} is damaged", "remove it: the measurement begins anew")
    return drawn
