"""Receipts: the proof, to be checked offline, that a statement is in the log and since when.

A receipt holds all but the two things its checker must have from elsewhere: the authority's public
key, and the root certificates of the time-stamp authority. What it says about itself (name, key,
roots, whether the time is a local one) is only a help to find those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field

from nsmark.errors import InputError, NsmarkError
from nsmark.files import read_bounded
from nsmark.identity import PublicKey, parse_json_object
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import AuthorityName, Count, Pem, Record, public_key_of
from nsmark_authority.statements import OpenedStatement, Statement, open_statement
from nsmark_authority.transparency import (
    MAX_ENVELOPE_BYTES,
    MAX_NOTE_BYTES,
    Checkpoint,
    NoteKey,
    check_inclusion,
    hash_leaf,
    open_checkpoint,
)
from nsmark_authority.transparency.local_authority import LOCAL_POLICY
from nsmark_authority.transparency.strict_base64 import decode_base64, encode_base64
from nsmark_authority.transparency.timestamp import Timestamp, check_token, read_root_certificates
from nsmark_authority.transparency.timestamp_messages import MAX_TOKEN_BYTES

RECEIPT_FORMAT: Final = "nsmark/receipt/1"
MAX_RECEIPT_BYTES = 4 << 20
RECEIPT_SUFFIX = ".receipt"

_MAX_ROOTS = 16
_MAX_ROOT_CHARACTERS = 16 * 1024
_MAX_PROOF = 63
_MAX_HASH_CHARACTERS = 44
_FETCH_AGAIN = "fetch the receipt again from the authority"


class ReceiptDocument(Record):
    """The JSON of a receipt."""

    format: Literal["nsmark/receipt/1"]
    authority: AuthorityName
    public_key: Pem
    entry: Annotated[str, Field(max_length=MAX_ENVELOPE_BYTES)]
    """The envelope's exact JSON, as text."""

    index: Count
    proof: Annotated[
        tuple[Annotated[str, Field(max_length=_MAX_HASH_CHARACTERS)], ...],
        Field(max_length=_MAX_PROOF, strict=False),
    ]
    checkpoint: Annotated[str, Field(max_length=MAX_NOTE_BYTES)]
    token: Annotated[str, Field(max_length=2 * MAX_TOKEN_BYTES)]
    roots: Annotated[
        tuple[Annotated[str, Field(max_length=_MAX_ROOT_CHARACTERS)], ...],
        Field(min_length=1, max_length=_MAX_ROOTS, strict=False),
    ]
    local_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an owner keeps beside his key; nothing in it has been checked yet."""

    authority: str
    """Name of the authority: its log's origin."""

    public_key: PublicKey
    """The authority's, as it says itself."""

    entry: bytes
    """The envelope's exact JSON."""

    index: int
    """Place in the log, from 0."""

    proof: tuple[bytes, ...]
    """Audit path up to the checkpoint's root."""

    checkpoint: bytes
    """Signed note."""

    token: bytes
    """RFC 3161 token over the entry's SHA-256."""

    roots: tuple[x509.Certificate, ...]
    """What the authority checked the token against."""

    local_time: bool
    """Whether the authority says that the time is only its own."""

    @property
    def entry_id(self) -> str:
        """SHA-256 (hex) of the entry."""
        return hashlib.sha256(self.entry).hexdigest()

    @classmethod
    def parse(cls, content: bytes) -> Receipt:
        """Read a receipt.

        Raises:
            TransparencyError: No receipt, or longer than one can be.
        """
        if len(content) > MAX_RECEIPT_BYTES:
            raise TransparencyError(
                f"the receipt is larger than {MAX_RECEIPT_BYTES:,} bytes", _FETCH_AGAIN
            )
        try:
            members = parse_json_object(content.decode("utf-8"), "receipt")
        except (InputError, UnicodeError) as error:
            raise TransparencyError(
                "the receipt is no JSON object in UTF-8", _FETCH_AGAIN
            ) from error
        found = members.get("format")
        if found != RECEIPT_FORMAT:
            raise TransparencyError(
                f"receipt format {str(found)[:40]!r} is unknown to this version",
                f"expected {RECEIPT_FORMAT!r}; a newer nsmark may read it",
            )
        document = ReceiptDocument.from_members(members, "receipt")
        return cls(
            authority=document.authority,
            public_key=public_key_of(document.public_key),
            entry=document.entry.encode("utf-8"),
            index=document.index,
            proof=tuple(decode_base64(text, "proof of the receipt") for text in document.proof),
            checkpoint=document.checkpoint.encode("utf-8"),
            token=decode_base64(document.token, "token of the receipt"),
            roots=tuple(_read_root(pem) for pem in document.roots),
            local_time=document.local_time,
        )

    @classmethod
    def load(cls, path: Path) -> Receipt:
        """Read a ``.receipt`` file."""
        return cls.parse(read_bounded(path, MAX_RECEIPT_BYTES, "receipt"))

    def to_json(self) -> bytes:
        """Return the one form in which we write it (RFC 8785)."""
        return ReceiptDocument(
            format=RECEIPT_FORMAT,
            authority=self.authority,
            public_key=self.public_key.to_pem(),
            entry=self.entry.decode("utf-8"),
            index=self.index,
            proof=tuple(map(encode_base64, self.proof)),
            checkpoint=self.checkpoint.decode("utf-8"),
            token=encode_base64(self.token),
            roots=tuple(root.public_bytes(Encoding.PEM).decode("ascii") for root in self.roots),
            local_time=self.local_time,
        ).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedReceipt:
    """What a receipt proves, after every check was passed."""

    opened: OpenedStatement
    index: int
    checkpoint: Checkpoint
    timestamp: Timestamp
    is_local_time: bool
    """Whether the time is the authority's own word, not that of an independent time stamp."""

    are_roots_trusted: bool
    """Whether the time was checked against roots that the checker brought himself."""

    @property
    def statement(self) -> Statement:
        """What was said."""
        return self.opened.statement

    @property
    def entry_id(self) -> str:
        """SHA-256 (hex) of the entry."""
        return self.opened.entry_id

    @property
    def tree_size(self) -> int:
        """Number of entries of the log that the receipt speaks of."""
        return self.checkpoint.size

    @property
    def time(self) -> datetime:
        """When the entry was there at the latest."""
        return self.timestamp.time


def check_receipt(
    receipt: Receipt,
    authority_key: PublicKey,
    roots: Sequence[x509.Certificate] | None = None,
    *,
    content_sha256: str | None = None,
) -> CheckedReceipt:
    """Check a receipt without asking anybody.

    Args:
        receipt: What :meth:`Receipt.parse` read.
        authority_key: The authority's public key, known from elsewhere.
        roots: Trusted roots of time stamps. Without them those of the receipt are used, and the
            result says that the time is not to be trusted further than the receipt's source.
        content_sha256: Of the file that the receipt must be for, such as the key file.

    Raises:
        TransparencyError: Anything in it does not fit; the message says what.
    """
    if receipt.public_key != authority_key:
        raise TransparencyError(
            f"the receipt names another authority key ({receipt.public_key.fingerprint[:16]}…) "
            f"than the expected one ({authority_key.fingerprint[:16]}…)",
            "check it with the public key of the authority that gave it",
        )
    opened = open_statement(receipt.entry, authority=receipt.authority, authority_key=authority_key)
    checkpoint = open_checkpoint(receipt.checkpoint, NoteKey(receipt.authority, authority_key))
    check_inclusion(
        receipt.proof,
        leaf=hash_leaf(receipt.entry),
        index=receipt.index,
        size=checkpoint.size,
        root=checkpoint.root,
    )
    timestamp = check_token(
        receipt.token, bytes.fromhex(opened.entry_id), receipt.roots if roots is None else roots
    )
    is_local = timestamp.policy == LOCAL_POLICY
    if is_local != receipt.local_time:
        raise TransparencyError(
            f"the receipt says that its time is {_whose(receipt.local_time)}, "
            f"its token that it is {_whose(is_local)}",
            _FETCH_AGAIN,
        )
    if content_sha256 is not None:
        stated = getattr(opened.statement, "content_sha256", None)
        if stated != content_sha256:
            raise TransparencyError(
                "the receipt is for another file than this one",
                "give the file as it was filed, or the receipt that belongs to it",
            )
    return CheckedReceipt(
        opened=opened,
        index=receipt.index,
        checkpoint=checkpoint,
        timestamp=timestamp,
        is_local_time=is_local,
        are_roots_trusted=roots is not None,
    )


def _whose(is_local: bool) -> str:
    return "the authority's own" if is_local else "an independent one"


@lru_cache(maxsize=64)
def _read_root(pem: str) -> x509.Certificate:
    """Return the one certificate of a PEM text; receipts of one authority share theirs."""
    try:
        (root,) = read_root_certificates(pem.encode("utf-8"))
        written = root.public_bytes(Encoding.PEM).decode("ascii")
    except (NsmarkError, ValueError) as error:
        raise TransparencyError("a root of the receipt is no certificate", _FETCH_AGAIN) from error
    if written != pem:
        raise TransparencyError("a root of the receipt is not in plain PEM form", _FETCH_AGAIN)
    return root
