"""Proofs that a leaf is in a log, and that a log only grew.

A proof is bound to a tree by its size and root together: both must come from one checkpoint whose
signature was checked. Checks raise; what returns has been proved.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.merkle import (
    SubtreeHashes,
    hash_children,
    range_hash,
    require_hashes,
    require_sizes,
)


def inclusion_proof(tree: SubtreeHashes, index: int, size: int) -> tuple[bytes, ...]:
    """Return the audit path of one leaf in the tree of the first ``size`` leaves."""
    _require_leaf(index, size)
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _left_size(end - start)
        if index < middle:
            path.append(range_hash(tree, middle, end))
            end = middle
        else:
            path.append(range_hash(tree, start, middle))
            start = middle
    return tuple(reversed(path))


def consistency_proof(tree: SubtreeHashes, old_size: int, new_size: int) -> tuple[bytes, ...]:
    """Return the proof that the first ``old_size`` leaves are still there, in their order."""
    require_sizes(1, old_size, new_size)
    path: list[bytes] = []
    start, end = 0, new_size
    while end != old_size:
        middle = start + _left_size(end - start)
        if old_size <= middle:
            path.append(range_hash(tree, middle, end))
            end = middle
        else:
            path.append(range_hash(tree, start, middle))
            start = middle
    if start:  # else the last node is the old root, which the verifier has
        path.append(range_hash(tree, start, end))
    return tuple(reversed(path))


def check_inclusion(
    proof: Sequence[bytes], *, leaf: bytes, index: int, size: int, root: bytes
) -> None:
    """Check that a leaf hash stands at an index of a tree (RFC 9162 §2.1.3.2).

    Raises:
        TransparencyError: It does not, or the proof has not exactly the length it must have.
    """
    _require_leaf(index, size)
    require_hashes([leaf, root, *proof])
    _, found = _climb("inclusion", [leaf, *proof], index, size - 1)
    if found != root:
        raise _refused("inclusion", "it leads to another root")


def check_consistency(
    proof: Sequence[bytes], *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """Check that a tree only grew: the old one is its beginning (RFC 9162 §2.1.4.2).

    An empty old tree is refused: every tree begins with it, so there is nothing to prove. Trees of
    one size are consistent if they are the same; their proof is empty.

    Raises:
        TransparencyError: It does not, or the proof has not exactly the length it must have.
    """
    require_sizes(1, old_size, new_size)
    require_hashes([old_root, new_root, *proof])
    node, last = old_size - 1, new_size - 1
    while node & 1:  # up to the largest complete subtree in which the old tree ends
        node, last = node >> 1, last >> 1
    if old_size == new_size:
        node = last = 0
    # An old tree that is a node of the new one is left out of the proof.
    is_a_node = old_size == new_size or old_size.bit_count() == 1
    nodes = [old_root, *proof] if is_a_node else list(proof)
    if _climb("consistency", nodes, node, last) != (old_root, new_root):
        raise _refused("consistency", "it leads to other roots")


def _climb(kind: str, nodes: Sequence[bytes], node: int, last: int) -> tuple[bytes, bytes]:
    """Go from the first node up to the root, taking the others as siblings on the way.

    Args:
        kind: Of the proof, for errors.
        nodes: The first node and its siblings.
        node: Index of the first node in its level.
        last: Index of the last node of that level.

    Returns:
        The root over this node and all to its left, and the root over the whole level.
    """
    if not nodes:
        raise _refused(kind, "it is too short")
    left_root = whole_root = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            raise _refused(kind, "it is too long")
        if node & 1 or node == last:
            left_root = hash_children(sibling, left_root)
            whole_root = hash_children(sibling, whole_root)
            while node and not node & 1:  # a last node without sibling is its own parent
                node, last = node >> 1, last >> 1
        else:
            whole_root = hash_children(whole_root, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise _refused(kind, "it is too short")
    return left_root, whole_root


def _left_size(size: int) -> int:
    """Return the largest power of two below ``size``, which is at least 2."""
    return 1 << (size - 1).bit_length() - 1


def _require_leaf(index: int, size: int) -> None:
    require_sizes(1, size)
    if not 0 <= index < size:
        raise TransparencyError(
            f"a tree of {size} leaves has no leaf {index}", "leaves are counted from 0"
        )


def _refused(kind: str, reason: str) -> TransparencyError:
    return TransparencyError(
        f"the {kind} proof does not hold: {reason}",
        "fetch the proof again; if it still fails, the log is not what it claims to be",
    )
