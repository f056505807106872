"""The texts that models are pretrained, marked and measured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsmark.payload import read_texts

MAX_WORDS, MIN_WORDS = 48, 8
NUM_HELDOUT = 512


@dataclass(frozen=True, slots=True)
class Material:
    """The texts of all rows; no text is in two of corpus, held-out texts and pool."""

    paragraphs: list[str]
    """WikiText-2's training part, uncut: for pretraining."""
    corpus: list[str]
    """The same, cut: for marking."""
    heldout: list[str]
    """For fidelity and language-model losses."""
    pool: list[str]
    """Where verification texts are selected from."""


def read_material(data: Path) -> Material:
    """Read the texts from the data folder."""
    wikitext = data / "wikitext-2"
    paragraphs = long_enough(read_texts(wikitext / "train.txt.gz"))
    corpus = list(dict.fromkeys(cut(paragraphs)))
    valid = unseen(cut(long_enough(read_texts(wikitext / "valid.txt.gz"))), corpus)
    test = cut(long_enough(read_texts(wikitext / "test.txt.gz")))
    sentences = read_texts(data / "sst2" / "train_sentences.jsonl.gz")
    news = read_texts(data / "agnews" / "train.jsonl.gz")
    # At most half, where there are few (the tests' texts).
    heldout = valid[: min(NUM_HELDOUT, len(valid) // 2)]
    candidates = cut(sentences) + cut(news) + valid[len(heldout) :] + test
    return Material(paragraphs, corpus, heldout, unseen(candidates, corpus + heldout))


def long_enough(texts: Sequence[str]) -> list[str]:
    """Leave out headings and other short lines."""
    return [text for text in texts if len(text.split()) >= MIN_WORDS]


def cut(texts: Sequence[str]) -> list[str]:
    """Keep the first words of each text."""
    return [" ".join(text.split()[:MAX_WORDS]) for text in texts]


def unseen(texts: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the different texts that were not seen, in order."""
    known = set(seen)
    return [text for text in dict.fromkeys(texts) if text not in known]
