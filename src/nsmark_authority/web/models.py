"""What the API answers, as the OpenAPI document describes it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from nsmark_authority.records import DisputeState, FilingState, JobKind, JobState, Scope
from nsmark_authority.statements import Suspect
from nsmark_authority.web.errors import WebError

MAX_PAGE = 100
MAX_INDEX = (1 << 53) - 1
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_TIME = "2026-01-31T12:00:00Z"
_MAX_CURSOR_CHARACTERS = 32

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", examples=[_DIGEST])]
EntryId = Annotated[Digest, Field(description="SHA-256 of the entry's envelope.")]
KeyId = Annotated[Digest, Field(description="The key's own id.")]
Fingerprint = Annotated[Digest, Field(description="SHA-256 of a public key.")]
Time = Annotated[str, Field(examples=[_TIME])]
Index = Annotated[int, Field(ge=0, description="Place in the log, from 0.", examples=[7])]
Name = Annotated[str, Field(examples=["Example Lab"])]
# PostgreSQL cannot hold the character 0, nor look for it.
PLAIN = "^[^\\x00-\\x1f]*$"
Base64 = Annotated[str, Field(examples=["aGFzaA=="])]


class View(BaseModel):
    """Made from a record of the same members."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, record: object) -> Self:
        """Return a record as it is shown."""
        return cls.model_validate(record)


_Item = TypeVar("_Item", bound=View)


class Page(BaseModel, Generic[_Item]):
    """A part of a list: newest first, but answers to a dispute oldest first."""

    items: list[_Item]
    next: Annotated[
        str | None, Field(description="Pass it as `cursor` for the next part; null at the end.")
    ]


class OwnerView(View):
    """Somebody who registered a public key."""

    fingerprint: Fingerprint
    owner: Name
    public_key: Annotated[str, Field(description="PEM.")]
    index: Index
    entry_id: EntryId
    time: Time


class FilingView(View):
    """A filed key: what is public of it, and what became of it."""

    index: Index
    entry_id: EntryId
    time: Time
    key_id: KeyId
    fingerprint: Fingerprint
    owner: Name
    message: Annotated[str, Field(examples=["encoder-v2 is ours"])]
    created: Time
    signature_sha256: Digest
    content_sha256: Digest
    content_bytes: int
    model_digest: Digest | None
    succeeds: Annotated[Digest | None, Field(description="Key id of the predecessor.")]
    state: FilingState
    admission: Annotated[Digest | None, Field(description="Entry of the admission or refusal.")]
    revealed_by: Annotated[Digest | None, Field(description="First dispute that named it.")]
    withdrawn_by: Annotated[Digest | None, Field(description="Entry of the withdrawal.")]


class JobView(View):
    """Work in the background."""

    job_id: Annotated[str, Field(examples=["0f1e2d3c4b5a69788796a5b4c3d2e1f0"])]
    kind: JobKind
    subject: EntryId
    state: JobState
    progress: Annotated[float, Field(ge=0, le=1)]
    message: str
    attempts: int
    ready: Annotated[Time, Field(description="Not begun before.")]
    created: Time
    started: Time | None
    heartbeat: Time | None
    finished: Time | None


class Decision(BaseModel):
    """What the authority found about a filed key."""

    entry_id: EntryId
    admitted: bool
    reasons: list[str]
    control_set: Digest | None


class FilingDetail(FilingView):
    """A filed key, with the reasons of its admission or refusal, and the work on it."""

    decision: Decision | None
    job: JobView | None


class DepositView(View):
    """Something that was dated."""

    index: Index
    entry_id: EntryId
    time: Time
    fingerprint: Fingerprint
    what: Literal["model", "recorded"]
    content_sha256: Digest
    content_bytes: int
    model_digest: Digest | None
    note: str
    proven: Annotated[
        Time | None, Field(description="An earlier time that a time stamp from outside proves.")
    ]


class DepositDetail(DepositView):
    """Something that was dated, and whether it was handed over."""

    has_content: bool


class PublicationView(View):
    """A word list, pool or control set of the authority."""

    index: Index
    entry_id: EntryId
    time: Time
    what: Literal["word_list", "pool", "control_set"]
    name: str
    digest: Digest
    content_sha256: Digest
    content_bytes: int
    note: str


class DisputeView(View):
    """A dispute and where it stands."""

    index: Index
    entry_id: EntryId
    time: Time
    key_id: KeyId
    fingerprint: Fingerprint
    suspect: Suspect
    released: Time
    statement: str
    state: DisputeState
    outcome: str | None
    ruling: Annotated[Digest | None, Field(description="Entry of the ruling.")]
    answer_until: Time | None


class DefenceView(View):
    """An answer to a dispute."""

    index: Index
    entry_id: EntryId
    time: Time
    dispute: EntryId
    fingerprint: Fingerprint
    evidence: Annotated[Digest | None, Field(description="A deposit or filing of his.")]
    statement: str
    released: Annotated[
        Time | None, Field(description="Since when the suspect is public, as he says.")
    ]


class RulingView(View):
    """A ruling, in short; its entry holds it all."""

    index: Index
    entry_id: EntryId
    time: Time
    dispute: EntryId
    key_id: KeyId
    outcome: str
    verdict: str | None
    report_sha256: Digest | None


class DisputeDetail(BaseModel):
    """A dispute with everything that belongs to it."""

    dispute: DisputeView
    job: JobView | None
    num_defences: Annotated[int, Field(ge=0, description="Answers in all.", examples=[1])]
    defences: Annotated[
        list[DefenceView],
        Field(description="The first answers; all of them are under `defences` of the dispute."),
    ]
    ruling: RulingView | None


class ChallengeView(View):
    """A number to be signed, once."""

    nonce: Digest
    expires: Time


class TokenView(View):
    """A token, without its secret."""

    token_id: Annotated[str, Field(examples=["9f86d081884c7d65"])]
    fingerprint: Fingerprint | None
    scopes: list[Scope]
    label: str
    created: Time
    expires: Time
    revoked: Time | None


class NewToken(TokenView):
    """A new token: the only time that it can be seen."""

    token: Annotated[str, Field(examples=["nsm_…"])]


class TokenList(BaseModel):
    """Tokens, the newest first."""

    items: list[TokenView]
    next: None = None


class TokenRequest(BaseModel):
    """A wish for a further token of one's own."""

    model_config = ConfigDict(extra="forbid")

    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3, examples=[["file"]])]
    days: Annotated[
        int, Field(ge=1, le=3650, description="It never outlives the token it was made with.")
    ] = 30
    label: Annotated[str, Field(max_length=128, pattern=PLAIN, examples=["build server"])] = ""


class ReceiptObject(BaseModel):
    """The proof, to be checked offline, that a statement is in the log and since when."""

    format: Literal["nsmark/receipt/1"]
    authority: str
    public_key: str
    entry: Annotated[str, Field(description="The envelope's exact JSON.")]
    index: Index
    proof: list[Base64]
    checkpoint: Annotated[str, Field(description="Signed note.")]
    token: Annotated[str, Field(description="RFC 3161 token, base64.")]
    roots: list[str]
    local_time: Annotated[
        bool, Field(description="Whether the time is only the authority's own word.")
    ]


class RegisteredOwner(BaseModel):
    """What a new owner gets."""

    owner: OwnerView
    token: Annotated[str, Field(description="Seen only now.", examples=["nsm_…"])]
    token_id: str
    scopes: list[Scope]
    expires: Time
    receipt: ReceiptObject


class ReceiptCheck(BaseModel):
    """What a receipt proves, checked with this authority's own key and roots."""

    valid: bool
    reason: Annotated[str | None, Field(description="Why it proves nothing.")] = None
    hint: str | None = None
    entry_id: EntryId | None = None
    index: Index | None = None
    kind: Annotated[str | None, Field(examples=["filing"])] = None
    owner: Name | None = None
    fingerprint: Annotated[Digest | None, Field(description="Of the signer's key.")] = None
    content_sha256: Annotated[Digest | None, Field(description="Of what it is for.")] = None
    time: Time | None = None
    local_time: bool | None = None
    tree_size: int | None = None
    in_log: Annotated[
        bool | None, Field(description="Whether the log holds the entry at this place.")
    ] = None


class LogEntryView(BaseModel):
    """One entry of the log."""

    index: Index
    entry_id: EntryId
    kind: Annotated[str, Field(examples=["filing"])]
    time: Time
    entry: Annotated[Base64, Field(description="The envelope's exact JSON.")]


class LogPage(BaseModel):
    """Entries in their order."""

    items: list[LogEntryView]
    next: Annotated[int | None, Field(description="`start` of the next part; null at the end.")]


class InclusionProof(BaseModel):
    """That an entry is in the tree of a size."""

    entry_id: EntryId
    index: Index
    size: int
    proof: list[Base64]


class ConsistencyProof(BaseModel):
    """That the log only grew between two sizes."""

    old: int
    new: int
    proof: list[Base64]


class EventView(View):
    """A line of the audit trail."""

    number: int
    time: Time
    who: str
    what: str
    subject: str
    outcome: str


class AuditPage(BaseModel):
    """The audit trail, newest first."""

    items: list[EventView]
    next: str | None


class Limits(BaseModel):
    """What is taken."""

    max_key_bytes: int
    max_model_bytes: int
    max_recorded_bytes: int
    max_files: int
    reads_per_minute: int
    writes_per_minute: int


class About(BaseModel):
    """The authority: what a checker of receipts needs, and what an owner should know."""

    name: Annotated[str, Field(description="The log's origin.", examples=["nsmark.local"])]
    version: str
    public_key: Annotated[str, Field(description="PEM; get it from elsewhere, too.")]
    fingerprint: Fingerprint
    roots: Annotated[list[str], Field(description="PEM, of the time stamps.")]
    is_local_time: Annotated[
        bool, Field(description="If so, its times prove nothing to strangers.")
    ]
    checkpoint: str
    answer_seconds: int
    has_controls: Annotated[
        bool, Field(description="Whether there are control models; without any, filings wait.")
    ]
    has_worker: Annotated[bool, Field(description="Whether this server starts a worker itself.")]
    limits: Limits


class Health(BaseModel):
    """Whether the authority answers."""

    status: Literal["ok"]
    log_size: int


def encode_cursor(index: int) -> str:
    """Return a mark for the end of a part of a list."""
    return base64.urlsafe_b64encode(str(index).encode("ascii")).decode("ascii").rstrip("=")


def decode_cursor(cursor: str | None) -> int | None:
    """Return the index that a mark holds.

    Raises:
        WebError: It is none of ours (422).
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        digits = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        index = int(digits)
        if encode_cursor(index) != cursor or not 0 <= index <= MAX_INDEX:
            raise ValueError(digits)
    except (ValueError, binascii.Error, UnicodeError) as error:
        raise WebError(
            422, "query.cursor: not one that a list gave", "take it from `next` of the last part"
        ) from error
    return index


Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=_MAX_CURSOR_CHARACTERS, description="`next` of the part before."),
]


def make_page(
    view: type[_Item], find: Callable[..., Sequence[Any]], cursor: str | None, limit: int
) -> Page[_Item]:
    """Return a part of a list; one more is asked for, to see whether there is a next part."""
    found = find(before=decode_cursor(cursor), limit=limit + 1)
    shown = [view.of(record) for record in found[:limit]]
    more = len(found) > limit
    following = encode_cursor(found[limit - 1].index) if more else None
    return Page[view](items=shown, next=following)  # type: ignore[valid-type]
