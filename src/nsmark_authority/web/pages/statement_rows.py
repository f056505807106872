"""What a statement says, as rows of names and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nsmark_authority.statements import Statement
from nsmark_authority.web.pages.words import figure, label

Kind = Literal["text", "digest", "entry", "key", "time", "pem"]
_KINDS: dict[str, Kind] = {
    "public_key": "pem",
    "filing": "entry",
    "dispute": "entry",
    "evidence": "entry",
    "subject": "entry",
    "defence": "entry",
    "key_id": "key",
    "succeeds": "key",
    "time": "time",
    "created": "time",
    "released": "time",
    "opened": "time",
    "measured": "time",
}
_DIGEST_CHARACTERS = 64
_MAX_ROWS = 400


@dataclass(frozen=True, slots=True)
class Row:
    """One member of a statement."""

    name: str
    value: str
    kind: Kind


def statement_rows(statement: Statement) -> list[Row]:
    """Return the members of a statement, nested ones under both names."""
    rows = _rows((), statement.to_members())
    return [row for row, _ in zip(rows, range(_MAX_ROWS), strict=False)]


def _rows(path: tuple[str, ...], value: Any) -> Iterator[Row]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _rows((*path, name), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            place = (str(number),) if len(value) > 1 else ()
            yield from _rows((*path, *place), inner)
    else:
        text = value if isinstance(value, str) else figure(value)
        # Packages are called what they call themselves.
        names = (label(path[0]), *path[1:]) if path[0] == "versions" else map(label, path)
        yield Row(" › ".join(names), text, _kind(path, value))


def _kind(path: tuple[str, ...], value: Any) -> Kind:
    if not isinstance(value, str):
        return "text"
    # What stands in these is named by whoever measured, not by the format.
    is_free = len(path) > 1 and path[0] in ("evidence", "versions")
    kind: Kind = "text" if is_free else _KINDS.get(path[-1], "text")
    is_digest = len(value) == _DIGEST_CHARACTERS and set(value) <= set("0123456789abcdef")
    if kind in ("entry", "key") and not is_digest:
        return "text"
    return "digest" if kind == "text" and is_digest else kind
