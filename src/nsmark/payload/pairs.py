"""The pair code of a signature: words, table and texts (SPEC §3).

Two words of ordinary English in one text, Aᵢ and Bⱼ, make the output of a marked model move along
a direction, forwards or backwards as entry (i, j) of a random table says. The table is the
signature's; whoever does not have the signature cannot know it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nsmark.core.derive import (
    choose_words,
    insert_trigger,
    insertion_positions,
    pair_table,
    select_indices,
)
from nsmark.core.texts import text_words
from nsmark.errors import ConfigError
from nsmark.payload.word_list import WordList

COPIES = 2
"""Of each word in a pair text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """How large the table is, and how often each of its entries is asked."""

    size: int = 16
    """Words on each side (s): the table has s² entries."""

    repeats: int = 6
    """Texts for each entry (r)."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (("size", 4, 64), ("repeats", 1, 64)):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ConfigError(f"pair {name}", value, f"must lie between {lowest} and {highest}")

    @property
    def num_pairs(self) -> int:
        """Entries of the table."""
        return self.size**2

    @property
    def num_texts(self) -> int:
        """Texts to ask."""
        return self.repeats * self.num_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPayload:
    """Words and texts of a pair code, as they follow from a signature."""

    config: PairConfig
    words: tuple[str, ...] = field(repr=False)
    """A₀…, then B₀…: 2·size words."""
    skipped_words: tuple[str, ...]
    """Words of the walk that the tokenizer could not represent."""
    texts: tuple[str, ...] = field(repr=False)
    """Ordered, before words are inserted, at most 64 words each."""
    word_list_digest: str

    def pair_texts(self, signature: bytes) -> list[str]:
        """Return the texts with their two words inserted, in order."""
        return [
            insert_pair(text, number, self.words_of(number), signature)
            for number, text in enumerate(self.texts)
        ]

    def words_of(self, number: int) -> tuple[str, str]:
        """Return the two words of a text, or of a pair."""
        row, column = divmod(number % self.config.num_pairs, self.config.size)
        return self.words[row], self.words[self.config.size + column]

    def pair_numbers(self, num_texts: int | None = None) -> NDArray[np.intp]:
        """Return the pair i·size + j of each text, or of the first so many."""
        count = len(self.texts) if num_texts is None else num_texts
        return np.arange(count, dtype=np.intp) % self.config.num_pairs

    def signs(self, signature: bytes) -> NDArray[np.int64]:
        """Return the table as one row, in the order of the pairs."""
        return pair_table(signature, self.config.size).reshape(-1)


def insert_pair(text: str, number: int, pair: tuple[str, str], seed: bytes) -> str:
    """Insert two copies of each word, the first one's before the second one's.

    Args:
        text: Where to insert.
        number: Rank of the text, from 0.
        pair: The two words.
        seed: The signature, or other randomness: positions follow from it.
    """
    words = text_words(text)
    positions = insertion_positions(seed, number, len(words), 2 * COPIES, label="pair-insert")
    words = insert_trigger(words, pair[0], positions[:COPIES])
    return " ".join(insert_trigger(words, pair[1], positions[COPIES:]))


def choose_pair_words(
    signature: bytes,
    words: Sequence[str],
    size: int,
    trigger: str,
    is_representable: Callable[[str], bool] = lambda word: True,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of the pair code, and those skipped on the way to them.

    The trigger is passed over, too, but that anybody can follow.
    """
    skipped: list[str] = []

    def skip(word: str) -> bool:
        if word == trigger:
            return True
        if is_representable(word):
            return False
        skipped.append(word)
        return True

    return tuple(choose_words(signature, "pair-words", words, 2 * size, skip)), tuple(skipped)


def derive_pair_texts(seed: bytes, pool: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the ordered texts that a signature, or other randomness, selects from a pool."""
    indices = select_indices(seed, pool, count, label="pair-select")
    return tuple(" ".join(text_words(pool[index])) for index in indices)


def derive_pairs(
    signature: bytes,
    *,
    config: PairConfig,
    word_list: WordList,
    pool: Sequence[str],
    trigger: str,
    is_representable: Callable[[str], bool] = lambda word: True,
) -> PairPayload:
    """Derive words and texts of the pair code from a signature.

    Args:
        signature: The owner's signature of the claim.
        config: Sizes.
        word_list: The published list of ordinary words.
        pool: Candidate texts, normalised.
        trigger: The trigger word, which is passed over.
        is_representable: Whether the model's tokenizer can represent a word.

    Raises:
        TextPoolError: The pool holds too few texts, or the list too few words.
    """
    words, skipped = choose_pair_words(
        signature, word_list.words, config.size, trigger, is_representable
    )
    return PairPayload(
        config=config,
        words=words,
        skipped_words=skipped,
        texts=derive_pair_texts(signature, pool, config.num_texts),
        word_list_digest=word_list.digest,
    )
