"""Reading what an authority answers: JSON of the expected shape, or an error of ours."""

from __future__ import annotations

from typing import Any, TypeVar

from nsmark_authority.errors import AuthorityError
from nsmark_authority.transparency.strict_base64 import decode_base64

T = TypeVar("T")
_HINT = "see whether client and authority are of fitting versions"
_MAX_PROOF = 130
"""Twice the height of the largest tree."""


def member(document: dict[str, Any], name: str, kind: type[T], what: str) -> T:
    """Return a member of an answer.

    Raises:
        AuthorityError: It is missing, or of another type.
    """
    value = document.get(name)
    # bool is an int to Python, but not to JSON.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise AuthorityError(f"the authority's {what} has no proper member {name!r}", _HINT)
    return value


def texts(document: dict[str, Any], name: str, what: str, max_items: int) -> list[str]:
    """Return a member that is a list of texts.

    Raises:
        AuthorityError: It is none, or too long.
    """
    found = member(document, name, list, what)
    if len(found) > max_items or not all(isinstance(item, str) for item in found):
        raise AuthorityError(f"the authority's {what} has no proper list {name!r}", _HINT)
    return found


def objects(document: dict[str, Any], name: str, what: str, max_items: int) -> list[dict[str, Any]]:
    """Return a member that is a list of objects.

    Raises:
        AuthorityError: It is none, or too long.
    """
    found = member(document, name, list, what)
    if len(found) > max_items or not all(isinstance(item, dict) for item in found):
        raise AuthorityError(f"the authority's {what} has no proper list {name!r}", _HINT)
    return found


def proof_of(document: dict[str, Any], what: str) -> tuple[bytes, ...]:
    """Return the hashes of a proof.

    Raises:
        AuthorityError: There is no list of texts.
        TransparencyError: They are not in base64.
    """
    return tuple(decode_base64(item, what) for item in texts(document, "proof", what, _MAX_PROOF))
