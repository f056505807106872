"""Blocks of the templates, for pages that are put together in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from nsmark.report.html.document import environment


def section(number: int, heading: str, *content: str) -> Markup:
    """Return a numbered section, so that a letter can point at it."""
    return _block("section", number, heading, *content)


def paragraph(*content: str, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return _block("paragraph", class_, *content)


def figure(heading: str, picture: str, *caption: str) -> Markup:
    """Return a picture under its heading, with what it says in words below."""
    return _block("figure", heading, picture, *caption)


def table(
    caption: str, first: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]
) -> Markup:
    """Return a table of short values, one thing per row.

    Args:
        caption: For those who cannot see it.
        first: Heading of the first column, the names of the rows.
        columns: Headings of the others.
        rows: A name and its values.
    """
    return _block("table", caption, first, columns, rows)


def _block(name: str, *values: object) -> Markup:
    made: Markup = getattr(environment().get_template("blocks.html").module, name)(*values)
    return made
