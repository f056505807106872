"""The published lists from which trigger words and words of pair codes are drawn."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from nsmark.core.texts import decode_lines, lines_digest
from nsmark.errors import TextPoolError
from nsmark.files import read_bounded

_WORD = re.compile(r"[a-z]{4,12}")
_MIN_WORDS = 2000
MIN_PAIR_WORDS = 8
"""Of a pair code's list: it is the table that is secret. Keys made from one short list share their
words, and a suspect can be asked for all of them at once."""
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class WordList:
    """Sorted, distinct, lower-case words; named by the digest of its content."""

    words: tuple[str, ...]
    min_words: int = field(default=_MIN_WORDS, compare=False, kw_only=True)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if len(self.words) < self.min_words:
            raise TextPoolError(
                f"the word list has {len(self.words)} words, {self.min_words} are needed",
                "publish a longer list: few words make triggers easy to guess",
            )
        bad = next((word for word in self.words if not _WORD.fullmatch(word)), None)
        if bad is not None:
            raise TextPoolError(
                f"word {bad[:20]!r} is not 4 to 12 lower-case ASCII letters", "remove it"
            )
        if list(self.words) != sorted(set(self.words)):
            raise TextPoolError(
                "the word list is not sorted or repeats a word", "sort it and drop repeats"
            )
        object.__setattr__(self, "digest", lines_digest(self.words))


@functools.cache
def published_word_list() -> WordList:
    """Return the list of rare words that ships with the package: triggers come from it."""
    return _packaged("words-v1.txt")


@functools.cache
def ordinary_word_list() -> WordList:
    """Return the list of ordinary words: those of pair codes, which no filter finds odd."""
    return _packaged("ordinary-v1.txt")


def _packaged(name: str) -> WordList:
    file = resources.files("nsmark.payload") / "data" / name
    return WordList(tuple(decode_lines(file.read_bytes())))


def read_word_list(path: Path, min_words: int = _MIN_WORDS) -> WordList:
    """Read a list that an authority published.

    Args:
        path: One word per line.
        min_words: Fewer are refused; for pair codes :data:`MIN_PAIR_WORDS`.
    """
    try:
        words = tuple(decode_lines(read_bounded(path, _MAX_BYTES, "word list")))
        return WordList(words, min_words=min_words)
    except UnicodeDecodeError as error:
        raise TextPoolError(f"{path} is not UTF-8 text", "expected one word per line") from error


def read_pair_words(path: Path) -> WordList:
    """Read a list for pair codes, which may be short."""
    return read_word_list(path, MIN_PAIR_WORDS)
