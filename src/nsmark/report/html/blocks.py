"""Blocks that sections are made of."""

from __future__ import annotations

from collections.abc import Iterable

from nsmark.report.html.markup import Markup, element


def section(number: int, heading: str, *content: str) -> Markup:
    """Return a numbered section, so that a letter can point at it."""
    name = f"section-{number}"
    return element(
        "section",
        element("h2", element("span", f"{number}", class_="number"), heading, id=name),
        *content,
        aria_labelledby=name,
    )


def paragraph(*content: str, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return element("p", *content, class_=class_)


def facts_list(rows: Iterable[tuple[str, str | None]]) -> Markup:
    """Return names with their values; a row without a value is left out."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value))
            for name, value in rows
            if value is not None
        ),
    )


def bullets(items: Iterable[str], class_: str | None = None) -> Markup:
    """Return a list."""
    return element("ul", *(element("li", item) for item in items), class_=class_)


def figure(heading: str, picture: str, *caption: str) -> Markup:
    """Return a picture under its heading, with what it says in words below."""
    return element("figure", element("h3", heading), picture, element("figcaption", *caption))


def code(text: str) -> Markup:
    """Return a digest, a name or a command in type of fixed width."""
    return element("code", text)
