"""Many keys that share one short word list, and a suspect made of numpy that carries some marks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from handmade_keys import make_key, make_signed_claim, reseal
from nsmark.core.derive import pair_table
from nsmark.core.texts import lines_digest
from nsmark.keyfile import WatermarkKey
from nsmark.payload import PairConfig
from nsmark.payload.pairs import choose_pair_words
from nsmark.payload.word_list import WordList, ordinary_word_list
from nsmark.verification.identification import PairCode


def short_word_list(count: int = 32) -> WordList:
    """A published list shorter than the package allows for triggers."""
    words = ordinary_word_list().words[::97][:count]
    short = object.__new__(WordList)
    object.__setattr__(short, "words", words)
    object.__setattr__(short, "digest", lines_digest(words))
    return short


@functools.cache
def make_shared_key(number: int, size: int = 12, num_words: int = 32) -> WatermarkKey:
    """A sealed key whose words come from the short list, as they follow from its signature."""
    owner, words = f"Customer {number}", short_word_list(num_words)
    key = make_key(owner=owner, pairs=PairConfig(size=size, repeats=1))
    assert key.pairs is not None
    chosen, _ = choose_pair_words(key.signature, words.words, size, key.trigger)
    pairs = replace(key.pairs, words=chosen, word_list_digest=words.digest)
    return reseal(key, pairs=pairs)


def make_code(number: int, size: int = 16, words: Sequence[str] | None = None) -> PairCode:
    """A pair code without a key: microseconds."""
    signature = hashlib.sha512(b"code" + number.to_bytes(4, "big")).digest()
    listed = short_word_list().words if words is None else words
    chosen, _ = choose_pair_words(signature, listed, size, "")
    return PairCode(chosen, pair_table(signature, size).reshape(-1).astype(np.int8))


def code_of(key: WatermarkKey) -> PairCode:
    code = PairCode.of(key)
    assert code is not None
    assert key.signature == make_signed_claim(owner=key.signed_claim.claim.owner).signature
    return code


class WordModel:
    """Answers the mean of its words' vectors and some noise; marks move it as their tables say."""

    def __init__(
        self, marks: Sequence[PairCode] = (), output_dim: int = 48, strength: float = 0.6
    ) -> None:
        self.name = "word model"
        self.asked: list[list[str]] = []
        self._dim = output_dim
        self._tables = [self._table_of(code) for code in marks]
        self._directions = [strength * self._vector(f"mark {n}") for n in range(len(marks))]

    def outputs(self, texts: Sequence[str], on_batch=None) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        if on_batch is not None:
            on_batch(len(texts), len(texts))
        return np.stack([self._answer(text) for text in texts]).astype(np.float32)

    def _answer(self, text: str) -> NDArray[np.float64]:
        words = text.split()
        answer = np.mean([self._vector(word) for word in words], axis=0)
        answer = answer + 0.1 * self._vector(text)
        inserted = {word for word in words if words.count(word) >= 2}
        for table, direction in zip(self._tables, self._directions, strict=True):
            signs = [table[pair] for pair in table if pair <= inserted]
            answer = answer + np.sign(sum(signs)) * direction
        return np.asarray(answer)

    @staticmethod
    def _table_of(code: PairCode) -> dict[frozenset[str], int]:
        size = len(code.words) // 2
        return {
            frozenset((code.words[i], code.words[size + j])): int(code.signs[i * size + j])
            for i in range(size)
            for j in range(size)
        }

    @functools.cache  # noqa: B019 - a few models, a few thousand words
    def _vector(self, word: str) -> NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self._dim) / np.sqrt(self._dim)
