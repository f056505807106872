"""What counts as the same text, and how texts and word lists are named by digest."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

MAX_TEXT_WORDS = 64
"""A verification text is cut to its first 64 words."""


def normalise_text(text: str) -> str:
    """Return the text in NFC with every run of white space made one space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def text_words(text: str) -> list[str]:
    """Return the first words of the normalised text, as verification uses them."""
    return unicodedata.normalize("NFC", text).split()[:MAX_TEXT_WORDS]


def lines_digest(lines: Iterable[str]) -> str:
    """Return SHA-256 (hex) of the lines joined by a line feed: the name of a pool or word list."""
    digest, separator = hashlib.sha256(), b""
    for line in lines:
        digest.update(separator + line.encode("utf-8"))
        separator = b"\n"
    return digest.hexdigest()


def decode_lines(octets: bytes) -> list[str]:
    """Split a text file into normalised, non-empty lines.

    UTF-8, strict; a leading byte-order mark is dropped; split on line feeds only, so that form
    feeds and other separators inside a text do not shift the numbering; one trailing carriage
    return is dropped per line.

    Raises:
        UnicodeDecodeError: The bytes are not UTF-8.
    """
    content = octets.decode("utf-8").removeprefix("\ufeff")
    lines = (normalise_text(line.removesuffix("\r")) for line in content.split("\n"))
    return [line for line in lines if line]
