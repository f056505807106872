"""Signature + purpose label → the same signs, indices and positions on every machine.

Everything secret about a watermark follows from the signature through labelled hashes, so that
an owner cannot choose it freely and a verifier can recompute it. Golden values of all of these
are kept in the tests: a change here breaks every key ever made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nsmark.core.bits import SignVector, bytes_to_signs
from nsmark.core.texts import normalise_text
from nsmark.errors import ConfigError, TextPoolError

# A pool in which few texts are distinct must end in an error, not in an endless walk. A walk
# that visits a pool of size n for the last distinct text needs about n·ln(n) steps.
_WALK_STEPS_PER_ITEM = 64


def _labelled(label: str, signature: bytes) -> bytes:
    return b"nsmark/v1/" + label.encode("ascii") + b"\x00" + signature


def seed(signature: bytes, label: str) -> bytes:
    """Return the 32-byte seed of one purpose."""
    return hashlib.sha256(_labelled(label, signature)).digest()


def stream(signature: bytes, label: str, num_bytes: int) -> bytes:
    """Return the first ``num_bytes`` of the byte stream of one purpose."""
    return hashlib.shake_256(_labelled(label, signature)).digest(num_bytes)


def chain(signature: bytes, label: str) -> Iterator[int]:
    """Yield the numbers h₁, h₂, … of the one-way hash chain of one purpose (paper: Select)."""
    digest = seed(signature, label)
    while True:
        digest = hashlib.sha256(digest).digest()
        yield int.from_bytes(digest, "big")


def _signs(signature: bytes, label: str, count: int) -> SignVector:
    _require_positive("count", count)
    return bytes_to_signs(stream(signature, label, -(-count // 8)))[:count]


def signature_bits(signature: bytes, num_bits: int = 256) -> SignVector:
    """Return the ±1 vector that the watermark carries (paper: sig), shape (num_bits,)."""
    return _signs(signature, "bits", num_bits)


def spreading_code(signature: bytes, length: int) -> SignVector:
    """Return the ±1 spreading code (paper: sm), shape (length,)."""
    return _signs(signature, "spread", length)


def watermark_vector(signature: bytes, num_bits: int = 256, spread_factor: int = 3) -> SignVector:
    """Return the spread-spectrum coded signature (paper: sig_sm).

    Entry j is bit j mod num_bits times entry j of the spreading code.

    Returns:
        Shape (spread_factor * num_bits,), entries ±1.
    """
    _require_positive("spread_factor", spread_factor)
    repeated = np.tile(signature_bits(signature, num_bits), spread_factor)
    return repeated * spreading_code(signature, spread_factor * num_bits)


def readout_matrix(signature: bytes, num_bits: int, output_dim: int) -> NDArray[np.int64]:
    """Return the derived readout R, ±1, row-major from its stream.

    Returns:
        Shape (min(num_bits, output_dim // 2), output_dim).
    """
    rows = min(num_bits, output_dim // 2)
    if rows < 1:
        raise ConfigError("output_dim", output_dim, "a derived readout needs two dimensions")
    return _signs(signature, "readout", rows * output_dim).reshape(rows, output_dim)


def walk_indices(
    signature: bytes,
    label: str,
    length: int,
    count: int,
    is_taken: Callable[[int], bool],
) -> list[int]:
    """Walk a chain over ``length`` items and keep the first ``count`` that are not taken.

    ``is_taken(index)`` is asked once per visited index and records the ones it lets pass.
    Stops early, with fewer indices, when the walk has gone on long enough to have seen all.
    """
    if length < 1:
        return []
    kept: list[int] = []
    visited: set[int] = set()
    limit = _WALK_STEPS_PER_ITEM * (length + count)
    for steps, number in enumerate(chain(signature, label)):
        if len(kept) == count or len(visited) == length or steps >= limit:
            break
        index = number % length
        if index in visited:
            continue
        visited.add(index)
        if not is_taken(index):
            kept.append(index)
    return kept


def select_indices(
    signature: bytes, texts: Sequence[str], count: int, *, label: str = "select"
) -> list[int]:
    """Choose ``count`` texts, in order, by the signature's hash chain (paper: Select).

    An index whose normalised text is already taken is skipped, so that no column of the output
    matrix repeats.

    Args:
        signature: The owner's 64-byte signature.
        texts: The candidate pool; its order is part of the result.
        count: How many texts (paper: q).
        label: Purpose label of the chain.

    Raises:
        TextPoolError: The pool holds fewer distinct texts.
    """
    _require_positive("count", count)
    taken: set[str] = set()

    def is_taken(index: int) -> bool:
        text = normalise_text(texts[index])
        if text in taken:
            return True
        taken.add(text)
        return False

    indices = walk_indices(signature, label, len(texts), count, is_taken)
    if len(indices) < count:
        distinct = len({normalise_text(text) for text in texts})
        raise TextPoolError(
            f"the pool holds {distinct} distinct texts, {count} are needed",
            "use a larger pool or fewer verification texts",
        )
    return indices


def choose_words(
    signature: bytes,
    label: str,
    words: Sequence[str],
    count: int,
    skip: Callable[[str], bool] = lambda word: False,
) -> list[str]:
    """Walk a chain over the word list and return the first ``count`` words not skipped."""
    taken: set[str] = set()

    def is_taken(index: int) -> bool:
        word = words[index]
        if word in taken or skip(word):
            return True
        taken.add(word)
        return False

    chosen = [words[i] for i in walk_indices(signature, label, len(words), count, is_taken)]
    if len(chosen) < count:
        raise TextPoolError(
            f"the word list yields only {len(chosen)} of {count} words",
            "use a longer word list",
        )
    return chosen


def insertion_positions(
    signature: bytes,
    text_index: int,
    num_words: int,
    copies: int = 5,
    window: int = 64,
    *,
    label: str = "insert",
) -> list[int]:
    """Return where the trigger copies of one text go, in the order in which they are inserted.

    Args:
        signature: The owner's signature.
        text_index: Rank of the text among the verification texts, from 0.
        num_words: Words of the text before any insertion.
        copies: How many copies are inserted.
        window: Positions lie among the first ``window`` words.
        label: Purpose label.
    """
    prefix = seed(signature, label) + text_index.to_bytes(4, "big")
    reach = min(num_words, window)
    positions = []
    for copy in range(copies):
        digest = hashlib.sha256(prefix + copy.to_bytes(4, "big")).digest()
        positions.append(int.from_bytes(digest[:8], "big") % (reach + copy + 1))
    return positions


def insert_trigger(words: Sequence[str], trigger: str, positions: Sequence[int]) -> list[str]:
    """Return the words with the trigger inserted before each position in turn.

    A position counts in the list as it stands after the insertions before it.
    """
    result = list(words)
    for position in positions:
        result.insert(position, trigger)
    return result


def pair_words(
    signature: bytes, words: Sequence[str], size: int = 16, *, trigger: str | None = None
) -> list[str]:
    """Return the 2·size words of the pair code: first A₀…A₍ₛ₋₁₎, then B₀…B₍ₛ₋₁₎.

    Args:
        signature: The owner's signature.
        words: The published word list.
        size: Words on each side (s).
        trigger: The trigger word, which is skipped; by default the one this signature chooses.
    """
    _require_positive("size", size)
    if trigger is None:
        trigger = choose_words(signature, "trigger", words, 1)[0]
    return choose_words(signature, "pair-words", words, 2 * size, lambda word: word == trigger)


def pair_table(signature: bytes, size: int = 16) -> NDArray[np.int64]:
    """Return the table M of the pair code, ±1, shape (size, size), row-major."""
    _require_positive("size", size)
    return _signs(signature, "pair-table", size * size).reshape(size, size)


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(name, value, "must be at least 1")
