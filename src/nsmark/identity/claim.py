"""OwnershipClaim and its canonical bytes."""

from __future__ import annotations

import datetime
import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import rfc8785

from nsmark.errors import ClaimError, InputError

CLAIM_FORMAT = "nsmark/claim/1"
_FIELDS = ("format", "owner", "message", "created")
_MAX_OWNER_CHARACTERS = 256
_MAX_MESSAGE_CHARACTERS = 16_384
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def parse_json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Parse one JSON object, refusing duplicate keys, NaN and infinity.

    Raises:
        InputError: Not such an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("a key occurs twice")
        return members

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def finite(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):  # 1e999 is JSON, and infinity to Python
            raise ValueError(f"{digits[:20]} is too large")
        return number

    try:
        document = json.loads(
            text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"the {what} is not valid JSON: {error}", "check the file") from error
    if not isinstance(document, dict):
        raise InputError(f"the {what} is not a JSON object", "check the file")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipClaim:
    """What the owner signs (paper: the message m).

    Example:
        >>> claim = OwnershipClaim(owner="Example Lab", message="encoder-small is ours",
        ...                        created="2026-01-31T12:00:00Z")
        >>> claim.canonical_bytes()[:23]
        b'{"created":"2026-01-31T'
    """

    owner: str
    """Who claims."""

    message: str
    """What is claimed, in words."""

    created: str
    """When, as ``YYYY-MM-DDTHH:MM:SSZ``."""

    format: str = CLAIM_FORMAT
    """Name of this format."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str):
                raise ClaimError(f"claim field {name} is not a string", "quote it")
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ClaimError(
                    f"claim field {name} is not valid Unicode", "remove lone surrogates"
                ) from error
        if self.format != CLAIM_FORMAT:
            raise ClaimError(
                f"claim format {self.format[:40]!r} is unknown", f"expected {CLAIM_FORMAT!r}"
            )
        if not 0 < len(self.owner) <= _MAX_OWNER_CHARACTERS:
            raise ClaimError("owner must have 1 to 256 characters", "name the owner briefly")
        if not 0 < len(self.message) <= _MAX_MESSAGE_CHARACTERS:
            raise ClaimError("message must have 1 to 16,384 characters", "say what is claimed")
        _parse_time(self.created)

    @classmethod
    def make(cls, owner: str, message: str, created: str | None = None) -> OwnershipClaim:
        """Return a claim made now, or at a stated time."""
        return cls(owner=owner, message=message, created=utc_now() if created is None else created)

    @classmethod
    def from_mapping(cls, document: Any) -> OwnershipClaim:
        """Read a claim object; exactly the four fields, nothing more."""
        if not isinstance(document, dict) or sorted(document) != sorted(_FIELDS):
            raise ClaimError(
                "a claim has exactly the fields format, owner, message and created",
                "make one with `nsmark identity sign`",
            )
        return cls(**document)

    def to_mapping(self) -> dict[str, str]:
        """Return the four fields."""
        return asdict(self)

    def canonical_bytes(self) -> bytes:
        """Return what is signed: the object in RFC 8785 form, whatever the order of its fields."""
        return rfc8785.dumps(self.to_mapping())


def _parse_time(text: str) -> datetime.datetime:
    if not _TIME.fullmatch(text):
        raise ClaimError(
            f"time {text[:40]!r} is not of the form YYYY-MM-DDTHH:MM:SSZ",
            "for example 2026-01-31T12:00:00Z",
        )
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError as error:
        raise ClaimError(f"there is no such time as {text}", "check day and hour") from error


def utc_now() -> str:
    """Return the time now in the form claims use."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
