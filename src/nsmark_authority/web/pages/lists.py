"""Parts of lists, and the addresses of the next ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from nsmark_authority.web.models import decode_cursor, encode_cursor

PAGE_ROWS = 25
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Part(Generic[_Row]):
    """A part of a list, newest first."""

    rows: Sequence[_Row]
    next: str | None
    """Address of the next part."""

    first: str | None
    """Address of the first part, unless it is this one."""


def part_of(
    find: Callable[..., Sequence[Any]], path: str, cursor: str | None, **query: str | None
) -> Part[Any]:
    """Return a part of a list; one row more is asked for, to see whether there is a next part.

    Args:
        find: Takes ``before`` and ``limit``.
        path: Of the page.
        cursor: From the address, if it is not the first part.
        query: What else the address holds; empty values are left out.
    """
    before = decode_cursor(cursor)
    found = find(before=before, limit=PAGE_ROWS + 1)
    kept = {name: value for name, value in query.items() if value}
    following = None
    if len(found) > PAGE_ROWS:
        following = _address(path, kept | {"cursor": encode_cursor(found[PAGE_ROWS - 1].index)})
    return Part(found[:PAGE_ROWS], following, None if cursor is None else _address(path, kept))


def _address(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
