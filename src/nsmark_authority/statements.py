"""What owners and the authority say: signed statements, each an entry of the public log.

A statement is canonical JSON (RFC 8785) of type ``application/vnd.nsmark.KIND.v1+json`` in a DSSE
envelope. Owners sign theirs with the key that stands in them; the authority signs what it finds.
Every statement names the authority it is made to, so that none can be taken to another. An entry
of the log is the envelope's exact JSON, and its SHA-256 is the entry's name (``entry_id``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from nsmark.identity import Identity, OwnershipClaim, PublicKey, SignedClaim
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import (
    AuthorityName,
    ClaimMembers,
    Count,
    Digest,
    Line,
    Number,
    NumBytes,
    Pem,
    Prose,
    Record,
    Time,
    parse_canonical,
    public_key_of,
)
from nsmark_authority.transparency import Envelope, open_envelope, sign_envelope

MAX_STATEMENT_BYTES = 256 * 1024
"""A ruling on many claims is the longest."""

Outcome = Literal["upheld", "not_shown", "fell", "not_covered", "preceded", "could_not_measure"]
Verdict = Literal["owned", "not_shown", "could_not_measure"]

_MAX_TOKEN_CHARACTERS = 32 * 1024
_Reasons = Annotated[tuple[Prose, ...], Field(max_length=64, strict=False)]


class Statement(Record):
    """What all statements have in common."""

    kind: ClassVar[str]
    """The word in the payload's type, and in the log's index."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Members that came later. They are left out where they are None, never written as null: what
    was logged before them is read as ever, and still has one spelling only."""

    authority: AuthorityName
    """The authority it is made to: its log's origin."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__.lower()

    @classmethod
    def payload_type(cls) -> str:
        """Return the media type of the payload."""
        return f"application/vnd.nsmark.{cls.kind}.v1+json"

    @classmethod
    def from_members(cls, members: Any, what: str) -> Self:
        """Read an object; see :meth:`Record.from_members`."""
        if isinstance(members, dict) and cls.added:
            if any(members.get(name, "") is None for name in cls.added):
                raise TransparencyError(
                    f"the {what} has a member that is null", "make it with `nsmark client`"
                )
            members = dict.fromkeys(cls.added) | members
        return super().from_members(members, what)

    def to_members(self) -> dict[str, Any]:
        """Return what JSON can say."""
        return {
            name: value
            for name, value in super().to_members().items()
            if value is not None or name not in self.added
        }

    def to_payload(self) -> bytes:
        """Return what is signed (RFC 8785)."""
        return self.to_json()


class OwnerStatement(Statement):
    """A statement that its maker signs with the key named in it."""

    public_key: Pem
    """Whose statement it is."""

    def signer(self) -> PublicKey:
        """Return the key that must have signed."""
        return public_key_of(self.public_key)


class AuthorityStatement(Statement):
    """A statement that the authority signs."""


class Registration(OwnerStatement):
    """An owner's key: signing it proves that one has the private half."""

    owner: Line
    """A name; nobody checks that it is one's own."""

    nonce: Digest
    """What the authority gave out for this, once."""


class Filing(OwnerStatement):
    """A watermark key: its digest and claim; the key itself stays sealed."""

    claim: ClaimMembers
    signature_sha256: Digest
    """Of the claim's signature, which is the watermark's secret."""

    key_id: Digest
    """The key's content digest."""

    content_sha256: Digest
    """Of the key file as it is handed over."""

    content_bytes: NumBytes
    model_digest: Digest | None = None
    """Of the marked model, if the owner wants it known."""

    succeeds: Digest | None = None
    """Id of an earlier key of this owner's, whose place it takes once that one is revealed."""

    @model_validator(mode="after")
    def _is_no_circle(self) -> Self:
        if self.succeeds == self.key_id:
            raise ValueError("a key cannot succeed itself")
        return self

    @classmethod
    def of(
        cls,
        signed_claim: SignedClaim,
        *,
        authority: str,
        key_id: str,
        content: bytes,
        model_digest: str | None = None,
        succeeds: str | None = None,
    ) -> Filing:
        """Return the filing of a key file's bytes under its claim."""
        return cls(
            authority=authority,
            **signed_claim.public_form(),
            key_id=key_id,
            content_sha256=hashlib.sha256(content).hexdigest(),
            content_bytes=len(content),
            model_digest=model_digest,
            succeeds=succeeds,
        )

    def ownership_claim(self) -> OwnershipClaim:
        """Return the claim."""
        return OwnershipClaim.from_mapping(self.claim)


class Deposit(OwnerStatement):
    """A model or recorded outputs, dated; the content is sealed, or stays with its owner."""

    added: ClassVar[frozenset[str]] = frozenset({"token", "proven"})

    what: Literal["model", "recorded"]
    content_sha256: Digest
    """Of the one file, or of the manifest of a folder (:mod:`nsmark_authority.manifest`)."""

    content_bytes: NumBytes
    """Of the one file, or of all files of the folder together."""

    model_digest: Digest | None = None
    """Of a model's tensors, as key files name it; models have one, recorded outputs none."""

    note: Prose = ""
    token: Annotated[str, Field(max_length=_MAX_TOKEN_CHARACTERS)] | None = None
    """A time stamp (RFC 3161, base64) of ``content_sha256`` from an authority outside."""

    proven: Time | None = None
    """The time that the token says."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if (self.what == "model") != (self.model_digest is not None):
            raise ValueError("model_digest is for models, and models need it")
        if (self.token is None) != (self.proven is None):
            raise ValueError("token and proven come together")
        return self


class Suspect(Record):
    """What a dispute is about."""

    kind: Literal["endpoint", "recorded", "model"]
    interface: Literal["embeddings", "completions"] | None = None
    """How an endpoint is asked."""

    url: Line | None = None
    """Of an endpoint."""

    model: Line | None = None
    """Name under which an endpoint serves it."""

    content_sha256: Digest | None = None
    """Of recorded outputs, or of a folder's manifest."""

    content_bytes: NumBytes | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        remote = (self.interface, self.url, self.model)
        uploaded = (self.content_sha256, self.content_bytes)
        named, unnamed = (remote, uploaded) if self.kind == "endpoint" else (uploaded, remote)
        if None in named or any(value is not None for value in unnamed):
            raise ValueError(
                "an endpoint has interface, url and model; recorded outputs and models have "
                "content_sha256 and content_bytes"
            )
        return self


class Dispute(OwnerStatement):
    """A claim to a model that somebody serves: the claimant names his key and the suspect."""

    key_id: Digest
    suspect: Suspect
    released: Time
    """Since when the suspect is public, as the claimant says."""

    statement: Prose
    """The claimant's own words."""


class Defence(OwnerStatement):
    """The respondent's answer: something that he had earlier, or only words."""

    added: ClassVar[frozenset[str]] = frozenset({"released"})

    dispute: Digest
    """Entry id."""

    evidence: Digest | None
    """Entry id of a deposit or filing of his."""

    statement: Prose
    released: Time | None = None
    """Since when the suspect is public, if he says otherwise than the claimant."""


class Withdrawal(OwnerStatement):
    """The end of a filing or dispute of one's own; what was logged stays."""

    subject: Digest
    """Entry id of the filing or dispute."""

    reason: Prose


class Publication(AuthorityStatement):
    """Material that keys are derived from, or that they are measured against."""

    what: Literal["word_list", "pool", "control_set"]
    name: Line
    digest: Digest
    """By which keys name a pool or word list; of a control set, the digest of its content."""

    content_sha256: Digest
    """Of the file that is served."""

    content_bytes: NumBytes
    note: Prose = ""


class Admission(AuthorityStatement):
    """What came of the checks of a filed key."""

    filing: Digest
    """Entry id."""

    key_id: Digest
    admitted: bool
    reasons: _Reasons
    control_set: Digest | None
    """Digest of the control set that the key was measured on."""

    versions: Annotated[dict[Line, Line], Field(max_length=32)]

    @model_validator(mode="after")
    def _has_reasons(self) -> Self:
        if not self.admitted and not self.reasons:
            raise ValueError("a refusal has reasons")
        return self


class OtherClaim(Record):
    """Another admitted key that was found on the same suspect."""

    filing: Digest
    key_id: Digest
    owner: Line
    time: Time
    """Of its filing, from the time stamp."""


class Ruling(AuthorityStatement):
    """What the authority found in a dispute."""

    dispute: Digest
    """Entry id."""

    key_id: Digest
    outcome: Outcome
    verdict: Verdict | None
    """What the measurement said by itself; none if none was made."""

    reasons: _Reasons
    evidence: Annotated[dict[Line, Number | Count | bool | Line | None], Field(max_length=128)]
    """The figures in short; the report has them all."""

    report_sha256: Digest | None
    """Of the report of ``verify``, which the authority serves."""

    randomness: Digest | None
    """32 bytes that the authority drew after the dispute was logged."""

    defence: Digest | None
    """Entry id of the defence that made the claim fall."""

    other_claims: Annotated[tuple[OtherClaim, ...], Field(max_length=256, strict=False)]
    opened: Time
    measured: Time
    versions: Annotated[dict[Line, Line], Field(max_length=32)]


STATEMENTS: dict[str, type[Statement]] = {
    statement.payload_type(): statement
    for statement in (
        Registration,
        Filing,
        Deposit,
        Dispute,
        Defence,
        Withdrawal,
        Publication,
        Admission,
        Ruling,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStatement:
    """A statement whose signature was checked, and the entry it makes."""

    statement: Statement
    signer: PublicKey
    entry: bytes = field(repr=False)
    """The envelope's exact JSON: a leaf of the log."""

    entry_id: str
    """SHA-256 (hex) of the entry."""


def parse_statement(payload_type: str, payload: bytes) -> Statement:
    """Read the payload of an envelope.

    Raises:
        TransparencyError: Of an unknown type, not canonical, or a member is not as it must be.
    """
    statement = STATEMENTS.get(payload_type)
    if statement is None:
        raise TransparencyError(
            f"there are no statements of type {payload_type[:80]!r}",
            "a newer nsmark may know them",
        )
    what = f"{statement.kind} statement"
    return statement.from_members(parse_canonical(payload, what, MAX_STATEMENT_BYTES), what)


def read_statement(entry: bytes) -> Statement:
    """Return what an entry says; who says it is not checked.

    Raises:
        TransparencyError: It is malformed.
    """
    envelope = Envelope.parse(entry)
    return parse_statement(envelope.payload_type, envelope.payload)


def sign_statement(statement: Statement, identity: Identity) -> Envelope:
    """Put a statement into an envelope and sign it.

    Raises:
        TransparencyError: It names another key as its maker's, or says what no reader accepts.
    """
    if isinstance(statement, OwnerStatement) and statement.signer() != identity.public_key:
        raise TransparencyError(
            "the statement names another key than the one it is to be signed with",
            "put the public key of the signing identity into it",
        )
    payload = statement.to_payload()
    # Fields can hold what no reader takes, if made without validation.
    parse_statement(statement.payload_type(), payload)
    return sign_envelope(statement.payload_type(), payload, identity)


def entry_id_of(entry: bytes) -> str:
    """Return the name of an entry: SHA-256 (hex) of the envelope's JSON."""
    return hashlib.sha256(entry).hexdigest()


def open_statement(
    document: bytes, *, authority: str | None, authority_key: PublicKey
) -> OpenedStatement:
    """Read a signed statement and check that the one who says it signed it, and only he.

    Args:
        document: The envelope's JSON, in the one form in which we write it.
        authority: The authority it must be made to; any, if None.
        authority_key: Whose signature the authority's own statements must bear.

    Raises:
        TransparencyError: Malformed, made to another authority, or not signed as it must be.
    """
    envelope = Envelope.parse(document)
    statement = parse_statement(envelope.payload_type, envelope.payload)
    signer = statement.signer() if isinstance(statement, OwnerStatement) else authority_key
    open_envelope(document, statement.payload_type(), [signer])
    # Other signatures, hints or spaces would give one statement many entries.
    hints = [line.key_id for line in envelope.signatures]
    if hints != [signer.fingerprint] or envelope.to_json() != document:
        raise TransparencyError(
            "the envelope is not written as nsmark writes it, with its maker's signature alone",
            "sign the statement again",
        )
    if authority is not None and statement.authority != authority:
        raise TransparencyError(
            f"the statement is made to {statement.authority[:80]!r}, not to {authority[:80]!r}",
            "sign one for this authority",
        )
    return OpenedStatement(
        statement=statement, signer=signer, entry=document, entry_id=entry_id_of(document)
    )
