"""What a suspect is asked, and what the owner's model answered to the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.core.pair_code import MIN_PAIRS
from nsmark.errors import ConfigError, UsageError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.pairs import derive_pair_texts, insert_pair
from nsmark.payload.payload import WatermarkPayload, derive_texts
from nsmark.suspects.recorded import RecordedOutputs

_LEAST_RANDOM_BYTES = 16


@dataclass(frozen=True, slots=True)
class PairQuestions:
    """Texts of a pair code, and what the table says of each pair."""

    texts: tuple[str, ...]
    numbers: NDArray[np.intp]
    """The pair of each text, from 0."""
    signs: NDArray[np.int64]
    """The table's entry of each pair that is asked."""
    seed: int = 0
    """Deals the pairs into halves."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Texts with and without the trigger; outputs have one row per text."""

    triggered: tuple[str, ...]
    untriggered: tuple[str, ...]
    owner_triggered: NDArray[np.float32]
    owner_untriggered: NDArray[np.float32]
    pairs: PairQuestions | None = None

    @property
    def texts(self) -> list[str]:
        """All texts, in the order in which they are asked."""
        return [*self.triggered, *self.untriggered, *(self.pairs.texts if self.pairs else ())]

    def sorted_out(self, name: str, outputs: NDArray[np.float64]) -> RecordedOutputs:
        """Return the answers to :attr:`texts`, each kind by itself."""
        first, second = len(self.triggered), len(self.triggered) + len(self.untriggered)
        pairs = outputs[second:] if self.pairs is not None else None
        return RecordedOutputs(name, outputs[:first], outputs[first:second], pairs)


def key_questions(key: WatermarkKey, num_pair_texts: int | None = None) -> Questions:
    """Return the questions that a key holds, with the owner's stored answers.

    Args:
        key: The key.
        num_pair_texts: Ask only so many texts of its pair code; 0 asks none.
    """
    payload = key.payload()
    return Questions(
        tuple(payload.triggered_texts()),
        payload.verification_texts,
        key.owner_triggered,
        key.owner_untriggered,
        pair_questions(key, num_pair_texts),
    )


def pair_questions(
    key: WatermarkKey, num_texts: int | None = None, fresh: FreshPairs | None = None
) -> PairQuestions | None:
    """Return the texts of a key's pair code; None where it has none or none are to be asked.

    Fewer texts than pairs ask fewer pairs, and so read fewer bits: which ones does not depend on
    any answer, so that the p-value stays valid.

    Args:
        key: The key.
        num_texts: How many; by default all.
        fresh: Texts and positions by a verifier's randomness instead of the signature.

    Raises:
        ConfigError: More texts than there are, or too few for a test.
    """
    pairs = key.pairs
    if pairs is None or num_texts == 0:
        return None
    config = pairs.config
    count = config.num_texts if num_texts is None else num_texts
    if not min(MIN_PAIRS, config.num_pairs) <= count <= config.num_texts:
        reason = f"must lie between {MIN_PAIRS} and {config.num_texts}, or be 0 to ask none"
        raise ConfigError("pair texts", count, reason)
    seed, base, deal = key.signature, pairs.texts, 0
    if fresh is not None:
        seed = seed_from(fresh.randomness, "fresh")
        base = derive_pair_texts(seed, fresh.pool, count)
        deal = int.from_bytes(seed[:4], "big")
    texts = [insert_pair(base[t], t, pairs.words_of(t), seed) for t in range(count)]
    signs = pairs.signs(key.signature)[: min(count, config.num_pairs)]
    return PairQuestions(tuple(texts), pairs.pair_numbers(count), signs, deal)


@dataclass(frozen=True, slots=True)
class FreshPairs:
    """Where a verifier takes the texts of a pair code from: no owner could prepare for them."""

    randomness: bytes
    pool: Sequence[str]


def fresh_payload(key: WatermarkKey, randomness: bytes, pool: Sequence[str]) -> WatermarkPayload:
    """Choose texts and trigger positions by a verifier's randomness instead of the signature.

    Nobody could prepare for them. The trigger stays: it is what the model was trained with.

    Args:
        key: The key.
        randomness: At least 16 bytes that the owner did not choose.
        pool: The published pool the key names, normalised.
    """
    seed = seed_from(randomness, "fresh")
    texts = derive_texts(seed, pool, key.configuration.num_texts)
    return replace(key.payload(), signature=seed, verification_texts=texts)


def seed_from(randomness: bytes, purpose: str) -> bytes:
    """Return what a verifier's choices for one purpose follow from.

    Raises:
        UsageError: So little randomness can be guessed.
    """
    if len(randomness) < _LEAST_RANDOM_BYTES:
        raise UsageError(
            f"{len(randomness)} bytes of randomness are too few",
            f"give at least {2 * _LEAST_RANDOM_BYTES} hexadecimal digits, freshly drawn",
        )
    return hashlib.sha512(f"nsmark/v1/{purpose}\0".encode("ascii") + randomness).digest()
