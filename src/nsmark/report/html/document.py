"""Pages from templates: one file each, that loads nothing and does nothing.

What a template is given is escaped where it stands, unless it is markup already. What it is not
given is an error. Text from outside passes ``said``, ``sentence``, ``digest`` or ``clean``, too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nsmark.report import odds
from nsmark.report.html import words
from nsmark.report.html.markup import element

Rows = tuple[tuple[str, str | None], ...]
"""Names and values for a list of facts; a value is None where it is not known."""


class Figure(NamedTuple):
    """A picture under its heading, with what it says in words."""

    heading: str
    picture: str
    caption: str


def document(title: str, heading: str, *content: str) -> str:
    """Return a page that is put together from blocks.

    Args:
        title: For the window and the list of files.
        heading: What kind of page it is.
        content: The band, then the sections.
    """
    return render("page.html", title=title, heading=heading, content=content)


def render(template: str, **values: Any) -> str:
    """Return a page; the same values give the same bytes."""
    page = environment().get_template(template).render(values)
    # Lines are broken for who reads the template. Text from outside has none: they are escaped.
    return re.sub(r"\n[ \n]*", " ", page).strip() + "\n"


@functools.cache
def environment() -> Environment:
    """Return where templates come from, and how they write values."""
    made = Environment(
        loader=PackageLoader("nsmark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clean": words.clean,
        "count": words.count,
        "digest": digest,
        "how_often": odds.how_often,
        "moment": _moment,
        "number": words.number,
        "once_in": odds.once_in,
        "one_in": words.one_in,
        "percent": words.percent,
        "power_of_ten": odds.power_of_ten,
        "said": _said,
        "sentence": _sentence,
        "written_out": odds.written_out,
    }
    return made


def digest(value: Any) -> Markup | None:
    """Return a digest in type of fixed width; None where there is none."""
    return element("code", words.clean(value, 200)) if isinstance(value, str) and value else None


def _said(text: str | None, limit: int = words.NAME_LIMIT) -> Markup | None:
    return words.outside(text, limit) if text else None


def _sentence(text: str) -> Markup:
    return element("bdi", words.clean(text, words.TEXT_LIMIT))


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


# Only these may be printed: a configuration with a further field may hold anything.
_CONFIGURATION = {
    "output_dim": "numbers per answer",
    "num_texts": "texts",
    "num_bits": "bits of the signature",
    "spread_factor": "copies of a bit",
    "copies": "copies of the trigger in a text",
    "placement": "placement",
    "pooling": "pooling",
    "normalise": "answers of unit length",
    "max_length": "tokens at most",
    "hidden_sizes": "hidden layers of the extractor",
}


def key_rows(key_id: str, key: Mapping[str, Any], versions: Mapping[str, str | None]) -> Rows:
    """Return what a key says of itself in public, and which software took part.

    A page is handed to the other side, and a secret that strayed into ``key`` must not go with it:
    it is asked only for the names that are known here.
    """
    configuration = key.get("configuration") or {}
    pairs = key.get("pairs") or {}
    marks = configuration.get("marks")
    settings = [
        f"{label}: {_plain(configuration[name])}"
        for name, label in _CONFIGURATION.items()
        if name in configuration
    ]
    software = [f"{name} {version}" for name, version in versions.items() if version]
    table = (
        f"table of {_plain(pairs['size'])} × {_plain(pairs['size'])} signs, "
        f"{words.count(pairs['repeats'], 'text')} for each"
        if pairs
        else None
    )
    return (
        ("Key", digest(key_id)),
        ("Owner's model (SHA‑256)", digest(key.get("model_sha256"))),
        ("Pool of texts (SHA‑256)", digest(key.get("pool_sha256"))),
        ("Word list (SHA‑256)", digest(key.get("word_list_sha256"))),
        ("Marks", _plain(marks) if marks else None),
        ("Pair code", table),
        ("Pair code's word list (SHA‑256)", digest(pairs.get("word_list_sha256"))),
        ("Configuration", "; ".join(settings) or None),
        ("Key written by", f"nsmark {_plain(key['library_version'])}"
            if key.get("library_version") else None),
        ("Versions", words.clean(", ".join(software), words.TEXT_LIMIT) or None),
    )  # fmt: skip


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(words.clean(str(one)) for one in value)
    return words.clean(str(value))
