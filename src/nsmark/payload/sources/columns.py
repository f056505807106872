"""Which column holds the texts, and what a cell may be."""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.errors import TextPoolError

DEFAULT_COLUMN = "text"

_MAX_NAMES_SHOWN = 20
_MAX_NAME_LENGTH = 40


def missing_column(where: str, column: str, present: Sequence[object]) -> TextPoolError:
    """Return the error that says which columns there are."""
    # The names come from the file: quoted, cut and counted, so that they cannot flood a terminal.
    names = [repr(str(name)[:_MAX_NAME_LENGTH]) for name in present[:_MAX_NAMES_SHOWN]]
    if len(present) > _MAX_NAMES_SHOWN:
        names.append(f"and {len(present) - _MAX_NAMES_SHOWN} more")
    listing = ", ".join(names) or "none"
    return TextPoolError(
        f"{where} has no column {column!r}; it has: {listing}",
        "name the column after a #, as in FILE#column",
    )


def cell_text(value: object, where: str, column: str) -> str:
    """Return a cell's text; a missing value is an empty text, as it is in CSV.

    Raises:
        TextPoolError: It is of another type, or no text that can be written as UTF-8.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TextPoolError(
            f"{where}: {column!r} is of type {type(value).__name__}, not text",
            "choose a column of texts with FILE#column, or repair the row",
        )
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:  # JSON can spell half a character: "\ud800"
            raise TextPoolError(
                f"{where}: {column!r} holds half a surrogate pair, which is no character",
                "repair or remove the row",
            ) from error
    return value
