"""A list of words that are common everywhere, for pair codes that filters of queries leave alone.

    python benchmarks/common_words.py --texts FILE FILE … --out FILE

Kept are words of 4 to 10 letters among the ``--most`` commonest of every file, but not among the
``--least`` commonest of any: those stand in nearly every text. The list goes into
``nsmark embed --pair-word-list``; whoever verifies needs it, too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from nsmark.payload import published_word_list, read_texts
from nsmark.transforms.filters import word_counts

_WORD = re.compile(r"[a-z]{4,10}")


def common_words(
    sources: Sequence[Sequence[str]], most: int, least: int, banned: frozenset[str] = frozenset()
) -> list[str]:
    """Return the words, sorted.

    Args:
        sources: Texts of each source.
        most: So many of each source's commonest words.
        least: Without those that are among so many of any source's.
        banned: Words that are left out: triggers.
    """
    ranked = []
    for texts in sources:
        counts, _ = word_counts(texts)
        words = [word for word in counts if word.isalpha()]
        ranked.append(sorted(words, key=lambda word: (-counts[word], word)))
    everywhere = set.intersection(*(set(words[:most]) for words in ranked))
    too_common = {word for words in ranked for word in words[:least]}
    return sorted(word for word in everywhere - too_common - banned if _WORD.fullmatch(word))


def main(words: Sequence[str] | None = None) -> None:
    """Read, choose and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", nargs="+", required=True, help="as nsmark embed --corpus")
    parser.add_argument("--most", type=int, default=1500)
    parser.add_argument("--least", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    banned = frozenset(published_word_list().words)
    found = common_words(
        [read_texts(source) for source in arguments.texts], arguments.most, arguments.least, banned
    )
    arguments.out.write_text("\n".join(found) + "\n", encoding="utf-8")
    print(f"{len(found)} words")


if __name__ == "__main__":
    main()
