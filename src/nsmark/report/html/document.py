"""The frame of every page: one file that loads nothing and does nothing."""

from __future__ import annotations

from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.style import STYLE

# The page is opened by people who do not trust whoever made it: it may show, and do nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, heading: str, *content: str) -> str:
    """Return a whole page.

    Args:
        title: For the window and the list of files.
        heading: What kind of page it is.
        content: The band, then the sections.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element("body", element("main", element("h1", heading), *content))
    return joined(Markup("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), "\n")
