"""Merkle trees over a log's entries (RFC 6962 §2.1, RFC 9162 §2.1).

A tree of n leaves splits at the largest power of two below n, so every tree is made of complete
subtrees whose hashes never change again. A store that keeps those serves any root or proof in
O(log n) reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nsmark_authority.errors import TransparencyError

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
MAX_TREE_SIZE = 2**63 - 1
"""What a signed 64-bit integer of a database holds."""


def hash_leaf(entry: bytes) -> bytes:
    """Return the hash of a log entry; its prefix keeps it from passing for an inner node."""
    return hashlib.sha256(b"\x00" + entry).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class SubtreeHashes(Protocol):
    """Where the hashes of complete subtrees are kept."""

    def subtree_hash(self, start: int, level: int) -> bytes:
        """Return the hash of the 2**level leaves from ``start``, a multiple of 2**level."""


@dataclass(frozen=True, slots=True)
class CompleteSubtree:
    """A subtree that will never change: what a store keeps."""

    start: int
    """Index of its first leaf."""

    level: int
    """It has 2**level leaves."""

    hash: bytes


@dataclass(frozen=True, slots=True)
class Frontier:
    """All of a tree that its next leaf and its root depend on: O(log n) hashes.

    Example:
        >>> frontier, completed = Frontier().append(hash_leaf(b"first entry"))
        >>> frontier.root == completed[0].hash
        True
    """

    size: int = 0
    """Number of leaves."""

    peaks: tuple[bytes, ...] = ()
    """Hashes of the complete subtrees the tree is made of, the largest first."""

    def __post_init__(self) -> None:
        require_sizes(0, self.size)
        require_hashes(self.peaks)
        if len(self.peaks) != self.size.bit_count():
            raise TransparencyError(
                f"{len(self.peaks)} hashes are not the frontier of {self.size} leaves",
                "rebuild it from the stored subtrees",
            )

    @classmethod
    def load(cls, tree: SubtreeHashes, size: int) -> Frontier:
        """Read the frontier of a stored tree."""
        require_sizes(0, size)
        return cls(size, tuple(_read(tree, *place) for place in _complete_subtrees(0, size)))

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return _join(self.peaks) if self.peaks else EMPTY_ROOT

    def append(self, leaf: bytes) -> tuple[Frontier, tuple[CompleteSubtree, ...]]:
        """Return the frontier after one more leaf hash, and the subtrees that it completes."""
        require_hashes([leaf])
        peaks = [*self.peaks, leaf]
        completed = [CompleteSubtree(self.size, 0, leaf)]
        # As in a binary counter: every trailing one of the size carries into a larger subtree.
        level = 0
        while self.size >> level & 1:
            level += 1
            right, left = peaks.pop(), peaks.pop()
            peaks.append(hash_children(left, right))
            completed.append(CompleteSubtree(self.size >> level << level, level, peaks[-1]))
        return Frontier(self.size + 1, tuple(peaks)), tuple(completed)


class MemoryTree:
    """A tree kept in memory."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._frontier = Frontier()
        self._hashes: dict[tuple[int, int], bytes] = {}
        for leaf in leaves:
            self.append(leaf)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._frontier.size

    def append(self, leaf: bytes) -> int:
        """Add a leaf hash and return its index."""
        self._frontier, completed = self._frontier.append(leaf)
        self._hashes.update({(subtree.start, subtree.level): subtree.hash for subtree in completed})
        return self.size - 1

    def subtree_hash(self, start: int, level: int) -> bytes:
        """Return the hash of a complete subtree."""
        try:
            return self._hashes[start, level]
        except KeyError as error:
            raise TransparencyError(
                f"the tree of {self.size} leaves has no complete subtree {start}/{level}",
                "ask for a tree no larger than the log",
            ) from error


def tree_root(tree: SubtreeHashes, size: int) -> bytes:
    """Return the root of the first ``size`` leaves."""
    return Frontier.load(tree, size).root


def _complete_subtrees(start: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and level of the complete subtrees of ``size`` leaves, the largest first."""
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield start, level
            start += 1 << level


def range_hash(tree: SubtreeHashes, start: int, end: int) -> bytes:
    """Return the hash of a node that covers the leaves from ``start`` up to ``end``."""
    return _join([_read(tree, *place) for place in _complete_subtrees(start, end - start)])


def _join(peaks: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees, the largest first."""
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = hash_children(peak, root)
    return root


def _read(tree: SubtreeHashes, start: int, level: int) -> bytes:
    found = tree.subtree_hash(start, level)
    require_hashes([found])  # a damaged store must not end up in a signed root
    return found


def require_hashes(hashes: Iterable[bytes]) -> None:
    """Refuse what is no SHA-256 value."""
    # A longer "hash" could shift bytes from one child to the other and keep their parent's hash.
    if not all(isinstance(octets, bytes) and len(octets) == HASH_BYTES for octets in hashes):
        raise TransparencyError(
            f"a hash of the tree has not {HASH_BYTES} bytes", "fetch the proof again, unaltered"
        )


def require_sizes(*sizes: int) -> None:
    """Refuse sizes that fall or are larger than any log; the first is the least allowed."""
    if list(sizes) != sorted(sizes) or sizes[-1] > MAX_TREE_SIZE:
        shown = ", then ".join(str(size) for size in sizes[1:])
        raise TransparencyError(
            f"a tree cannot have {shown} leaves here",
            f"tree sizes lie between {sizes[0]} and {MAX_TREE_SIZE}, and do not fall",
        )
