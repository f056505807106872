"""What the members of statements may look like: bounded, in one spelling only."""

from __future__ import annotations

import datetime
import functools
import re
import unicodedata
from typing import Annotated, Any, Self

import rfc8785
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nsmark.errors import NsmarkError
from nsmark.identity import OwnershipClaim, PublicKey, parse_json_object
from nsmark_authority.characters import find_unfit, has_plain_spaces, name_of, without_unfit
from nsmark_authority.errors import TransparencyError

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
MAX_BYTES = (1 << 53) - 1
"""Above it, JSON numbers are no longer exact."""

MAX_PROSE_CHARACTERS = 4096
_MAX_PEM_CHARACTERS = 1024
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


class UnfitTextError(ValueError):
    """A text that statements do not take; ``hint`` says how to write it instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def format_time(moment: datetime.datetime) -> str:
    """Return a moment in the form statements use, cut to whole seconds."""
    return moment.astimezone(datetime.UTC).strftime(TIME_FORMAT)


def parse_time(text: str) -> datetime.datetime:
    """Return the moment a statement names.

    Raises:
        ValueError: Not of the form ``YYYY-MM-DDTHH:MM:SSZ``, or no such time.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("must be a time of the form YYYY-MM-DDTHH:MM:SSZ")
    return datetime.datetime.strptime(text, TIME_FORMAT).replace(tzinfo=datetime.UTC)


def _check_time(text: str) -> str:
    parse_time(text)
    return text


def _require_visible(text: str) -> None:
    unfit = find_unfit(text)
    if unfit is not None:
        raise UnfitTextError(
            "must hold no control, invisible, private or unassigned characters, but holds "
            f"{name_of(unfit)}",
            "write it without; joiners, marks of direction and variation selectors are invisible",
        )


def _check_line(text: str) -> str:
    _require_visible(text)
    if not text or not has_plain_spaces(text):
        raise UnfitTextError(
            "must be one line, not empty, with single plain spaces between words and none around",
            "write it without other spaces",
        )
    if not unicodedata.is_normalized("NFC", text):
        raise UnfitTextError(
            "must be in composed form (NFC)", "write letters and their accents as one character"
        )
    return text


def _check_prose(text: str) -> str:
    _require_visible(text.replace("\n", ""))
    return text


def printable_prose(text: str) -> str:
    """Return a text as statements may hold it: a space for what they refuse, and cut."""
    return without_unfit(text)[:MAX_PROSE_CHARACTERS]


@functools.lru_cache(maxsize=1024)
def public_key_of(pem: str) -> PublicKey:
    """Return the key of a PEM block in our spelling: one key, one text.

    Raises:
        ValueError: No sound key, or written in another way.
    """
    try:
        key = PublicKey.from_pem(pem)
    except NsmarkError as error:
        raise ValueError(str(error)) from error
    if key.to_pem() != pem:
        raise ValueError("must be a PEM block as nsmark writes it")
    return key


def _check_pem(pem: str) -> str:
    public_key_of(pem)
    return pem


def _check_name(name: str) -> str:
    if "+" in name or any(character.isspace() for character in name):
        raise ValueError("must hold no spaces or plus signs")
    return _check_line(name)


def _check_claim(claim: dict[str, str]) -> dict[str, str]:
    try:
        parsed = OwnershipClaim.from_mapping(claim)
    except NsmarkError as error:
        raise ValueError(str(error)) from error
    # A claim may hold any character; the public log does not take all of them.
    _check_line(parsed.owner)
    _check_prose(parsed.message)
    return parsed.to_mapping()


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Time = Annotated[str, Field(max_length=20), AfterValidator(_check_time)]
Line = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_line)]
Prose = Annotated[str, Field(max_length=MAX_PROSE_CHARACTERS), AfterValidator(_check_prose)]
Pem = Annotated[str, Field(max_length=_MAX_PEM_CHARACTERS), AfterValidator(_check_pem)]
AuthorityName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_name)]
ClaimMembers = Annotated[dict[str, str], AfterValidator(_check_claim)]
NumBytes = Annotated[int, Field(ge=1, le=MAX_BYTES)]
Count = Annotated[int, Field(ge=0, le=MAX_BYTES)]
# RFC 8785 writes larger floats as whole numbers, which are then too large to be read as such.
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]


class Record(BaseModel):
    """Members of exactly these names and types, never changed; written in one way only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def from_members(cls, members: Any, what: str) -> Self:
        """Read an object; members with a default must be there, too.

        Raises:
            TransparencyError: Something is missing, unknown, of another type or out of range.
        """
        if not isinstance(members, dict):
            raise TransparencyError(f"the {what} is not an object", "make it with `nsmark client`")
        missing = [name for name in cls.model_fields if name not in members]
        if missing:
            raise TransparencyError(
                f"the {what} has no member {missing[0]}", "make it with `nsmark client`"
            )
        try:
            return cls.model_validate(members)
        except (ValidationError, RecursionError) as error:
            raise refusal_of(what, error) from error

    def to_members(self) -> dict[str, Any]:
        """Return what JSON can say, every member there."""
        return self.model_dump(mode="json")

    def to_json(self) -> bytes:
        """Return the one form in which it is written (RFC 8785)."""
        return rfc8785.dumps(self.to_members())


def parse_canonical(content: bytes, what: str, max_bytes: int) -> dict[str, Any]:
    """Return the object of a JSON text in RFC 8785 form: there is no second way to write it.

    Raises:
        TransparencyError: Too long, no object, or written in another way.
    """
    hint = "get it again from where it was issued, unaltered"
    if len(content) > max_bytes:
        raise TransparencyError(f"the {what} is larger than {max_bytes:,} bytes", hint)
    try:
        members = parse_json_object(content.decode("utf-8"), what)
        canonical = rfc8785.dumps(members)
    except (NsmarkError, UnicodeError, rfc8785.CanonicalizationError, RecursionError) as error:
        raise TransparencyError(f"the {what} is no JSON object in UTF-8", hint) from error
    if canonical != content:
        raise TransparencyError(f"the {what} is not in canonical form (RFC 8785)", hint)
    return members


def refusal_of(what: str, error: ValidationError | RecursionError) -> TransparencyError:
    """Return what to tell whoever gave members that do not fit: the first of them, and why."""
    if isinstance(error, RecursionError):
        return TransparencyError(f"the {what} is nested too deeply", "nsmark did not write it")
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    hint = cause.hint if isinstance(cause, UnfitTextError) else "make it with `nsmark client`"
    where = ".".join(str(part) for part in first["loc"])[:100] or "the whole"
    reason = " ".join(first["msg"].removeprefix("Value error, ").split())[:200]
    return TransparencyError(f"the {what} is not acceptable: {where!r}: {reason}", hint)
