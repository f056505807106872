"""Elements as strings: whatever is not markup already is escaped on its way in."""

from __future__ import annotations

import html

_EMPTY = frozenset({"meta", "br", "circle", "line", "path", "polygon", "rect"})

Attribute = str | int | float | None


class Markup(str):
    """Text that is markup. Only :func:`element` and constants of this package may make it."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Return text as markup that shows it."""
    return text if isinstance(text, Markup) else Markup(html.escape(text, quote=True))


def joined(*parts: str) -> Markup:
    """Return the parts one after the other."""
    return Markup("".join(escaped(part) for part in parts))


def element(tag: str, *children: str, **attributes: Attribute) -> Markup:
    """Return an element; every child that is not :class:`Markup` is escaped, as are attributes.

    The result is well-formed XML too, so that a strict parser can read the page.

    Args:
        tag: Its name.
        children: What stands inside.
        attributes: ``class_`` is ``class``, other underscores are hyphens; None leaves one out.
    """
    written = "".join(
        f' {_attribute_name(name)}="{html.escape(_attribute_value(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _EMPTY:
        return Markup(f"<{tag}{written} />")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def coordinate(value: float) -> str:
    """Return a length on the page: a tenth of a pixel is enough, and keeps the file small."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _attribute_value(value: str | int | float) -> str:
    return coordinate(value) if isinstance(value, float) else str(value)
