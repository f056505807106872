"""Blocks that sections are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsmark.report.html.markup import Markup, element


def band(kind: str, sign: str, word: str, sentence: Iterable[str], remark: str) -> Markup:
    """Return what the page says, in one sentence between a sign and a remark.

    Args:
        kind: The class that gives it colours and edges.
        sign: The path drawn in the circle.
        word: The same in a word.
        sentence: Its parts.
        remark: What must be read with it.
    """
    drawn = element(
        "svg",
        element("circle", cx=21, cy=21, r=19, fill="none", stroke="currentColor", stroke_width="2"),
        element("path", d=sign, fill="none", stroke="currentColor", stroke_width="4"),
        class_="sign",
        viewBox="0 0 42 42",
        aria_hidden="true",
    )
    words = element(
        "div",
        element("p", word, class_="word"),
        element("p", *sentence, class_="sentence", id="verdict"),
        element("p", remark, class_="remark"),
    )
    return element("header", drawn, words, class_=f"band {kind}")


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


def table(
    caption: str,
    first: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
) -> Markup:
    """Return a table of short values, one thing per row.

    Roles stand in the open: on a phone rows are not laid out as a table's, and readers that go by
    the layout would no longer call it one.

    Args:
        caption: For those who cannot see it.
        first: Heading of the first column, the names of the rows.
        columns: Headings of the others.
        rows: A name and its values.
    """
    head = [element("th", first, scope="col", role="columnheader")]
    head += [
        element("th", column, scope="col", role="columnheader", class_="figures")
        for column in columns
    ]
    body = [
        element(
            "tr",
            element("th", name, scope="row", role="rowheader"),
            *(
                element("td", value, class_="figures", role="cell", data_column=column)
                for column, value in zip(columns, values, strict=True)
            ),
            role="row",
        )
        for name, values in rows
    ]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        class_="short",
        role="table",
    )


def code(text: str) -> Markup:
    """Return a digest, a name or a command in type of fixed width."""
    return element("code", text)
