"""What the authority tells about its entries, accounts and jobs: plain frozen records.

Times are texts ``YYYY-MM-DDTHH:MM:SSZ``; they sort as they follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nsmark_authority.statements import Suspect

FilingState = Literal["waiting", "admitted", "refused", "revealed", "succeeded", "withdrawn"]
DisputeState = Literal["open", "withdrawn", "ruled"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
JobKind = Literal["admission", "dispute"]
Scope = Literal["file", "dispute", "admin"]

ADMITTED: tuple[FilingState, ...] = ("admitted", "revealed", "succeeded")
"""States of keys that may be disputed with."""

SCOPES: tuple[Scope, ...] = ("file", "dispute", "admin")
OWNER_SCOPES: tuple[Scope, ...] = ("file", "dispute")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the log."""

    index: int
    entry_id: str
    kind: str
    """Of its statement, such as ``filing``."""

    time: str
    """From its time stamp."""

    entry: bytes = field(repr=False)
    """The envelope's exact JSON."""

    token: bytes = field(repr=False)
    """Its time stamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Somebody who registered a public key."""

    fingerprint: str
    owner: str
    public_key: str
    index: int
    entry_id: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledKey:
    """A filing and what became of it."""

    index: int
    entry_id: str
    time: str
    key_id: str
    fingerprint: str
    """Of the owner's public key."""

    owner: str
    """As the claim names him."""

    message: str
    created: str
    """When the owner says that he made the claim."""

    signature_sha256: str
    content_sha256: str
    content_bytes: int
    model_digest: str | None
    succeeds: str | None
    """Key id of the predecessor."""

    state: FilingState
    admission: str | None
    """Entry id of the admission or refusal."""

    revealed_by: str | None
    """Entry id of the first dispute that named the key."""

    withdrawn_by: str | None
    """Entry id of the withdrawal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositedThing:
    """A deposit."""

    index: int
    entry_id: str
    time: str
    fingerprint: str
    what: Literal["model", "recorded"]
    content_sha256: str
    content_bytes: int
    model_digest: str | None
    note: str
    proven: str | None
    """An earlier time that an outside time stamp proves, if one came with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedThing:
    """A word list, pool or control set of the authority."""

    index: int
    entry_id: str
    time: str
    what: Literal["word_list", "pool", "control_set"]
    name: str
    digest: str
    content_sha256: str
    content_bytes: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDispute:
    """A dispute and where it stands."""

    index: int
    entry_id: str
    time: str
    key_id: str
    fingerprint: str
    """Of the claimant's public key."""

    suspect: Suspect
    released: str
    statement: str
    state: DisputeState
    outcome: str | None
    ruling: str | None
    """Entry id of the ruling."""

    answer_until: str | None
    """Until when the respondent may answer; none once its job is gone."""

    job: str | None
    """Id of the job that measures it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDefence:
    """An answer to a dispute."""

    index: int
    entry_id: str
    time: str
    dispute: str
    fingerprint: str
    evidence: str | None
    statement: str
    released: str | None
    """Since when the suspect is public, as this answer says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRuling:
    """A ruling, in short; the entry holds it all."""

    index: int
    entry_id: str
    time: str
    dispute: str
    key_id: str
    outcome: str
    verdict: str | None
    report_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work in the background."""

    job_id: str
    kind: JobKind
    subject: str
    """Entry id of the filing or dispute."""

    state: JobState
    progress: float
    """From 0 to 1."""

    message: str
    attempts: int
    worker: str | None
    ready: str
    """Not to be begun before."""

    not_before: str | None
    """What ``ready`` was at first: for a dispute, the end of the time to answer."""

    troubles: int
    """How often it could not be done for the authority's own reasons, one after the other."""

    created: str
    started: str | None
    heartbeat: str | None
    finished: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A number to be signed, once."""

    nonce: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who calls: what a valid token says."""

    token_id: str
    """The first half of the token's SHA-256: fit to be shown and logged."""

    fingerprint: str | None
    """Of the owner's public key; none for the authority's own people."""

    scopes: tuple[Scope, ...]
    label: str
    created: str
    expires: str
    revoked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A new token: the only time that it can be seen."""

    token: str = field(repr=False)
    account: Account


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of the audit trail."""

    number: int
    time: str
    who: str
    what: str
    subject: str
    outcome: str
