"""Filters of texts: what an API takes out of a query before its model sees it.

Each takes and returns a text; a text that nothing is left of is passed on as it was. A filter is
a record, so that an attacked model can be saved and asked again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from nsmark.errors import ConfigError
from nsmark.transforms.changes import malformed

_MAX_FILTERS = 16
_MAX_WORDS = 2_000_000
_MAX_THRESHOLD = 1e6
# Around a word in an indented JSON file: its quotes, its count, the line's beginning and end.
_BYTES_AROUND = 28
_SPACE = "\t"


def bare(word: str) -> str:
    """Return a word as filters compare it: lower case, without punctuation around it."""
    return word.strip(".,;:!?\"'()[]{}…–—-").lower()


@dataclass(frozen=True)
class RepeatedWords:
    """Keep the first copies of every word of some length, take out further ones."""

    kind: ClassVar[str] = "repeated-words"
    most: int
    """Copies that stay."""
    min_letters: int = 4
    """Shorter words may be repeated: every sentence does."""

    def __call__(self, text: str) -> str:
        """Return the text without the repetitions."""
        seen: Counter[str] = Counter()
        kept = []
        for word in text.split():
            name = bare(word)
            seen[name] += 1
            if len(name) < self.min_letters or seen[name] <= self.most:
                kept.append(word)
        return " ".join(kept) or text


@dataclass(frozen=True)
class RareWords:
    """Take out words that are not among the known ones."""

    kind: ClassVar[str] = "rare-words"
    known: frozenset[str]
    """Bare words that stay."""

    def __call__(self, text: str) -> str:
        """Return the text without unknown words; numbers and signs stay."""
        kept = []
        for word in text.split():
            name = bare(word)
            if name in self.known or not name.isalpha():
                kept.append(word)
        return " ".join(kept) or text


@dataclass(frozen=True)
class SurprisingWords:
    """Take out words without which the text is much more probable (ONION).

    Probable by counts of words and of neighbours, interpolated; a rare word in a sentence costs
    its own probability and that of what stands next to it.
    """

    kind: ClassVar[str] = "surprising-words"
    words: Mapping[str, int]
    neighbours: Mapping[str, int]
    """Counts of two bare words, one after the other, joined by a tab."""
    threshold: float
    """A word is taken out if that makes the text more probable by so many nats."""

    @cached_property
    def _total(self) -> int:
        return sum(self.words.values())

    def __call__(self, text: str) -> str:
        """Return the text without its surprising words, each judged with all others in place."""
        words = text.split()
        gains = self.gains(words)
        kept = [word for word, gain in zip(words, gains, strict=True) if gain <= self.threshold]
        return " ".join(kept) or text

    def gains(self, words: Sequence[str]) -> list[float]:
        """Return by how many nats a text is more probable without each of its words.

        Numbers and signs are never worth it: counts of words say little about them.
        """
        names = [bare(word) for word in words]
        before = [None, *names][: len(names)]
        costs = [self._cost(*pair) for pair in zip(before, names, strict=True)]
        gains = []
        for place, name in enumerate(names):
            gain = costs[place]
            if place + 1 < len(names):
                # The next word has another one before it then, or none.
                gain += costs[place + 1] - self._cost(before[place], names[place + 1])
            gains.append(gain if name.isalpha() else -math.inf)
        return gains

    def _alone(self, word: str) -> float:
        """Return how probable a word is wherever it stands; never 0."""
        return (self.words.get(word, 0) + 0.5) / (self._total + 1.0)

    def _cost(self, first: str | None, second: str) -> float:
        """Return how improbable a word is after another, or as the first one, in nats."""
        alone = self._alone(second)
        seen = 0 if first is None else self.words.get(first, 0)
        if not seen:
            return -math.log(alone)
        pair = self.neighbours.get(f"{first}{_SPACE}{second}", 0)
        return -math.log(0.4 * alone + 0.6 * pair / seen)


TextFilter = RepeatedWords | RareWords | SurprisingWords


def word_counts(texts: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Count bare words and neighbours."""
    words: Counter[str] = Counter()
    neighbours: Counter[str] = Counter()
    for text in texts:
        names = [bare(word) for word in text.split()]
        words.update(names)
        neighbours.update(f"{a}{_SPACE}{b}" for a, b in pairwise(names))
    return words, neighbours


def commonest(counts: Mapping[str, int], most: int, max_bytes: int) -> dict[str, int]:
    """Return the largest counts: at most so many, and no more than fit a file beside the model.

    Of equal counts, the first in the order of the alphabet.
    """
    kept: dict[str, int] = {}
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]:
        max_bytes -= len(word.encode("utf-8", "replace")) + _BYTES_AROUND
        if max_bytes < 0:
            break
        kept[word] = count
    return kept


def apply_filters(filters: Sequence[TextFilter], texts: Sequence[str]) -> list[str]:
    """Put every text through every filter, in order."""
    found = list(texts)
    for each in filters:
        found = [each(text) for text in found]
    return found


def share_taken_out(text_filter: TextFilter, texts: Sequence[str]) -> float:
    """Return which share of the words of some texts a filter takes out: what it costs users."""
    before = sum(len(text.split()) for text in texts)
    after = sum(len(text.split()) for text in apply_filters([text_filter], texts))
    return (before - after) / max(1, before)


def write_filters(filters: Sequence[TextFilter]) -> list[dict[str, Any]]:
    """Return filters as a JSON list.

    Raises:
        ConfigError: There are more than can be read again.
    """
    if len(filters) > _MAX_FILTERS:
        raise ConfigError("filters of texts", len(filters), f"must be at most {_MAX_FILTERS}")
    entries: list[dict[str, Any]] = []
    for each in filters:
        match each:
            case RepeatedWords():
                own: dict[str, Any] = {"most": each.most, "min_letters": each.min_letters}
            case RareWords():
                own = {"known": sorted(each.known)}
            case SurprisingWords():
                own = {
                    "words": dict(each.words),
                    "neighbours": dict(each.neighbours),
                    "threshold": each.threshold,
                }
        entries.append({"kind": each.kind, **own})
    return entries


def read_filters(entries: Any) -> list[TextFilter]:
    """Read what :func:`write_filters` wrote, from a file that may be anybody's.

    Raises:
        ModelError: It is malformed.
    """
    if not isinstance(entries, list) or len(entries) > _MAX_FILTERS:
        raise malformed("no list of filters")
    return [_read_filter(entry, place) for place, entry in enumerate(entries)]


def _read_filter(entry: Any, place: int) -> TextFilter:
    found = entry if isinstance(entry, dict) else {}
    try:
        match found.get("kind"):
            case RepeatedWords.kind:
                return RepeatedWords(_count(found["most"]), _count(found["min_letters"]))
            case RareWords.kind:
                words = found["known"]
                if not isinstance(words, list) or not all(isinstance(w, str) for w in words):
                    raise ValueError("known")
                return RareWords(frozenset(_writable(words)))
            case SurprisingWords.kind:
                threshold = found["threshold"]
                if type(threshold) not in (int, float) or not abs(threshold) <= _MAX_THRESHOLD:
                    raise ValueError("threshold")
                words, neighbours = _counts(found["words"]), _counts(found["neighbours"])
                return SurprisingWords(words, neighbours, float(threshold))
    except (KeyError, TypeError, ValueError) as error:
        raise malformed(f"filter {place}: {error}") from error
    raise malformed(f"filter {place} is of an unknown kind")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError("a count is no small whole number")
    return value


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("no counts")
    return {word: _count(value[word]) for word in _writable(value)}


def _writable(words: Iterable[str]) -> list[str]:
    """Return words, refusing those with half a character: they could not be saved again."""
    found = list(words)
    if len(found) > _MAX_WORDS:
        raise ValueError("too many words")
    "".join(found).encode("utf-8")
    return found
