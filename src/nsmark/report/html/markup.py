"""Elements for pictures: whatever is not markup already is escaped on its way in."""

from __future__ import annotations

from markupsafe import Markup, escape

_EMPTY = frozenset({"circle", "line", "path", "rect"})


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element; children that are not :class:`Markup` are escaped, as are attributes.

    The result is well-formed XML too, so that a strict parser can read the page.

    Args:
        tag: Its name.
        children: What stands inside.
        attributes: ``class_`` is ``class``, other underscores are hyphens; None leaves one out.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_written(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = f">{''.join(map(escape, children))}</{tag}>" if tag not in _EMPTY else " />"
    return Markup(f"<{tag}{written}{inside}")  # noqa: S704 - every part is escaped


def coordinate(value: float) -> str:
    """Return a length on the page: a tenth of a pixel is enough, and keeps the file small."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _written(value: str | float) -> Markup:
    return escape(coordinate(value) if isinstance(value, float) else str(value))
