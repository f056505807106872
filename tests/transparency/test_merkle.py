"""Merkle trees: the published values, every proof of small trees, and nothing else proves."""

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency import (
    EMPTY_ROOT,
    MAX_TREE_SIZE,
    CompleteSubtree,
    Frontier,
    MemoryTree,
    check_consistency,
    check_inclusion,
    consistency_proof,
    hash_children,
    hash_leaf,
    inclusion_proof,
    tree_root,
)

# The inputs and roots by which implementations of Certificate Transparency test themselves.
ENTRIES = [
    bytes.fromhex(digits)
    for digits in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
MAX_SIZE = 70
LEAVES = [hash_leaf(b"entry %d" % i) for i in range(MAX_SIZE)]
TREE = MemoryTree(LEAVES)


# The definitions of RFC 6962 §2.1, word for word; nothing of ours is used.


def split(size: int) -> int:
    k = 1
    while 2 * k < size:
        k *= 2
    return k


def reference_root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    both = reference_root(leaves[:k]) + reference_root(leaves[k:])
    return hashlib.sha256(b"\x01" + both).digest()


def reference_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*reference_path(index, leaves[:k]), reference_root(leaves[k:])]
    return [*reference_path(index - k, leaves[k:]), reference_root(leaves[:k])]


def reference_subproof(old_size: int, leaves: Sequence[bytes], known: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if known else [reference_root(leaves)]
    k = split(len(leaves))
    if old_size <= k:
        return [*reference_subproof(old_size, leaves[:k], known), reference_root(leaves[k:])]
    return [*reference_subproof(old_size - k, leaves[k:], False), reference_root(leaves[:k])]


REFERENCE_ROOTS = [reference_root(LEAVES[:size]) for size in range(MAX_SIZE + 1)]


def flipped(octets: bytes, bit: int) -> bytes:
    altered = bytearray(octets)
    altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def altered_proofs(proof: Sequence[bytes], position: int, bit: int) -> list[list[bytes]]:
    """Every way to spoil a proof: longer, shorter, in another order, with another bit."""
    nodes, extra = list(proof), hashlib.sha256(b"extra").digest()
    spoiled = [[*nodes, extra], [extra, *nodes], [*nodes, *nodes] or [extra, extra]]
    if nodes:
        at = position % len(nodes)
        spoiled += [
            nodes[:at] + nodes[at + 1 :],
            [*nodes, nodes[-1]],
            [*nodes[:at], flipped(nodes[at], bit), *nodes[at + 1 :]],
            [*nodes[:at], nodes[at][:31], *nodes[at + 1 :]],
            [*nodes[:at], nodes[at] + b"\x00", *nodes[at + 1 :]],
            [*nodes[:at], b"", *nodes[at + 1 :]],
        ]
    if len(nodes) > 1:
        spoiled.append(nodes[1:] + nodes[:1])
    return spoiled


# Trees --------------------------------------------------------------------------------------


def test_golden_roots() -> None:
    leaves = [hash_leaf(entry) for entry in ENTRIES]

    for size, expected in enumerate(ROOTS):
        assert tree_root(MemoryTree(leaves), size).hex() == expected
        assert reference_root(leaves[:size]).hex() == expected
    assert EMPTY_ROOT.hex() == ROOTS[0]


def test_golden_proofs() -> None:
    tree = MemoryTree(hash_leaf(entry) for entry in ENTRIES)
    first = [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]

    assert [node.hex() for node in inclusion_proof(tree, 0, 8)] == first
    assert [node.hex() for node in consistency_proof(tree, 1, 8)] == first
    assert inclusion_proof(tree, 0, 1) == ()


def test_leaves_and_nodes_are_hashed_apart() -> None:
    left, right = LEAVES[:2]

    assert hash_leaf(b"") == hashlib.sha256(b"\x00").digest()
    assert hash_children(left, right) == hashlib.sha256(b"\x01" + left + right).digest()
    assert hash_leaf(left + right) != hash_children(left, right) != hash_children(right, left)


@pytest.mark.parametrize("size", range(MAX_SIZE + 1))
def test_the_root_is_that_of_the_definition_however_it_is_reached(size: int) -> None:
    frontier = Frontier()
    for leaf in LEAVES[:size]:
        frontier, _ = frontier.append(leaf)

    assert frontier.root == REFERENCE_ROOTS[size]
    assert tree_root(TREE, size) == REFERENCE_ROOTS[size]
    assert Frontier.load(TREE, size) == frontier


def test_an_appended_leaf_completes_the_subtrees_that_end_with_it() -> None:
    frontier = Frontier()
    for index, leaf in enumerate(LEAVES):
        frontier, completed = frontier.append(leaf)
        expected = [
            CompleteSubtree(start, level, reference_root(LEAVES[start : index + 1]))
            for level in range(8)
            if (start := index + 1 - 2**level) >= 0 and start % 2**level == 0
        ]
        assert list(completed) == expected
        assert len(frontier.peaks) == (index + 1).bit_count()


def test_a_tree_in_memory_counts_its_leaves_and_has_no_others() -> None:
    tree = MemoryTree(LEAVES[:5])

    assert tree.append(LEAVES[5]) == 5
    assert tree.size == 6
    assert tree.subtree_hash(4, 1) == hash_children(LEAVES[4], LEAVES[5])
    for start, level in ((6, 0), (4, 2), (1, 1), (-1, 0)):
        with pytest.raises(TransparencyError, match="no complete subtree"):
            tree.subtree_hash(start, level)
    with pytest.raises(TransparencyError, match="no complete subtree"):
        tree_root(tree, 7)


class CountingTree:
    """A tree of equal leaves, of any size, that counts the reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.levels = [LEAVES[0]]
        for _ in range(63):
            self.levels.append(hash_children(self.levels[-1], self.levels[-1]))

    def subtree_hash(self, start: int, level: int) -> bytes:
        assert start % 2**level == 0
        self.reads += 1
        return self.levels[level]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_proof_of_a_huge_tree_takes_few_reads_and_holds(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, MAX_TREE_SIZE))
    old_size = data.draw(st.integers(1, size))
    tree = CountingTree()
    root, old_root = tree_root(tree, size), tree_root(tree, old_size)
    tree.reads = 0

    included = inclusion_proof(tree, old_size - 1, size)
    assert tree.reads <= 2 * size.bit_length()
    tree.reads = 0
    consistent = consistency_proof(tree, old_size, size)
    assert tree.reads <= 2 * size.bit_length()

    check_inclusion(included, leaf=LEAVES[0], index=old_size - 1, size=size, root=root)
    check_consistency(
        consistent, old_size=old_size, old_root=old_root, new_size=size, new_root=root
    )


def test_a_damaged_store_is_noticed() -> None:
    class Damaged:
        def subtree_hash(self, start: int, level: int) -> bytes:
            return b"short"

    for read in (
        lambda: tree_root(Damaged(), 3),
        lambda: inclusion_proof(Damaged(), 0, 3),
        lambda: consistency_proof(Damaged(), 1, 3),
    ):
        with pytest.raises(TransparencyError, match="32 bytes"):
            read()


@pytest.mark.parametrize(
    ("size", "peaks"),
    [(-1, ()), (0, LEAVES[:1]), (1, ()), (3, LEAVES[:1]), (4, LEAVES[:2]), (2**63, LEAVES[:1])],
)
def test_a_frontier_that_fits_no_tree_is_refused(size: int, peaks: Sequence[bytes]) -> None:
    with pytest.raises(TransparencyError):
        Frontier(size, tuple(peaks))


@pytest.mark.parametrize("leaf", [b"", b"entry", LEAVES[0] + b"\x00", LEAVES[0].hex()])
def test_what_is_no_hash_is_not_appended(leaf: bytes) -> None:
    with pytest.raises(TransparencyError, match="32 bytes"):
        Frontier().append(leaf)


# Inclusion ----------------------------------------------------------------------------------


def test_every_leaf_of_every_small_tree_is_proved() -> None:
    for size in range(1, MAX_SIZE + 1):
        for index in range(size):
            proof = inclusion_proof(TREE, index, size)
            assert list(proof) == reference_path(index, LEAVES[:size])
            check_inclusion(
                proof, leaf=LEAVES[index], index=index, size=size, root=REFERENCE_ROOTS[size]
            )


def test_no_proof_holds_for_another_index_or_root() -> None:
    for size in range(1, 34):
        for index in range(size):
            proof = inclusion_proof(TREE, index, size)
            leaf, root = LEAVES[index], REFERENCE_ROOTS[size]
            for other in range(-1, size + 2):
                if other != index:
                    with pytest.raises(TransparencyError):
                        check_inclusion(proof, leaf=leaf, index=other, size=size, root=root)
            with pytest.raises(TransparencyError, match="another root"):
                check_inclusion(
                    proof, leaf=leaf, index=index, size=size, root=REFERENCE_ROOTS[size - 1]
                )


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 255), st.integers(0, 9))
def test_an_altered_inclusion_proof_is_refused(
    data: st.DataObject, bit: int, position: int
) -> None:
    size = data.draw(st.integers(1, MAX_SIZE))
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(TREE, index, size)
    leaf, root = LEAVES[index], REFERENCE_ROOTS[size]

    for altered in altered_proofs(proof, position, bit):
        with pytest.raises(TransparencyError):
            check_inclusion(altered, leaf=leaf, index=index, size=size, root=root)
    for spoil in (lambda octets: flipped(octets, bit), lambda octets: octets[1:], lambda _: b""):
        with pytest.raises(TransparencyError):
            check_inclusion(proof, leaf=spoil(leaf), index=index, size=size, root=root)
        with pytest.raises(TransparencyError):
            check_inclusion(proof, leaf=leaf, index=index, size=size, root=spoil(root))


def test_bytes_cannot_be_shifted_between_a_leaf_and_its_sibling() -> None:
    # 0x01 || leaf || sibling is the same text, wherever it is cut.
    both, root = LEAVES[0] + LEAVES[1], REFERENCE_ROOTS[2]

    check_inclusion([both[32:]], leaf=both[:32], index=0, size=2, root=root)
    for cut in (0, 31, 33, 64):
        with pytest.raises(TransparencyError, match="32 bytes"):
            check_inclusion([both[cut:]], leaf=both[:cut], index=0, size=2, root=root)


def test_an_inner_node_is_not_proved_as_a_leaf_of_the_tree() -> None:
    # Leaf 1 of a tree of 2 would be the right half of the tree of 4: sizes must be signed.
    right = hash_children(LEAVES[2], LEAVES[3])
    left = hash_children(LEAVES[0], LEAVES[1])

    with pytest.raises(TransparencyError, match="too short"):
        check_inclusion([left], leaf=right, index=1, size=4, root=REFERENCE_ROOTS[4])
    with pytest.raises(TransparencyError, match="too short"):
        check_inclusion([left], leaf=right, index=3, size=4, root=REFERENCE_ROOTS[4])


@pytest.mark.parametrize(
    ("index", "size"),
    [(0, 0), (0, -1), (-1, 1), (1, 1), (5, 5), (9, 5), (0, MAX_TREE_SIZE + 1)],
)
def test_leaves_that_no_tree_has_are_refused(index: int, size: int) -> None:
    with pytest.raises(TransparencyError) as asked:
        inclusion_proof(TREE, index, size)
    with pytest.raises(TransparencyError) as checked:
        check_inclusion([], leaf=LEAVES[0], index=index, size=size, root=LEAVES[0])

    assert str(asked.value) == str(checked.value)
    assert asked.value.hint


# Consistency --------------------------------------------------------------------------------


def test_every_small_tree_is_proved_to_begin_with_every_smaller_one() -> None:
    for new_size in range(1, MAX_SIZE + 1):
        for old_size in range(1, new_size + 1):
            proof = consistency_proof(TREE, old_size, new_size)
            assert list(proof) == reference_subproof(old_size, LEAVES[:new_size], True)
            check_consistency(
                proof,
                old_size=old_size,
                old_root=REFERENCE_ROOTS[old_size],
                new_size=new_size,
                new_root=REFERENCE_ROOTS[new_size],
            )


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 255), st.integers(0, 9))
def test_an_altered_consistency_proof_is_refused(
    data: st.DataObject, bit: int, position: int
) -> None:
    new_size = data.draw(st.integers(1, MAX_SIZE))
    old_size = data.draw(st.integers(1, new_size))
    proof = consistency_proof(TREE, old_size, new_size)
    old_root, new_root = REFERENCE_ROOTS[old_size], REFERENCE_ROOTS[new_size]

    def check(nodes: Sequence[bytes], old: bytes, new: bytes) -> None:
        check_consistency(nodes, old_size=old_size, old_root=old, new_size=new_size, new_root=new)

    for altered in altered_proofs(proof, position, bit):
        with pytest.raises(TransparencyError):
            check(altered, old_root, new_root)
    for spoil in (lambda root: flipped(root, bit), lambda root: root[1:], lambda root: b""):
        with pytest.raises(TransparencyError):
            check(proof, spoil(old_root), new_root)
        with pytest.raises(TransparencyError):
            check(proof, old_root, spoil(new_root))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_log_that_rewrote_an_entry_cannot_prove_that_it_grew(data: st.DataObject) -> None:
    new_size = data.draw(st.integers(1, MAX_SIZE))
    old_size = data.draw(st.integers(1, new_size))
    leaves = LEAVES[:new_size]
    leaves[data.draw(st.integers(0, old_size - 1))] = hash_leaf(b"rewritten")
    rewritten = MemoryTree(leaves)

    with pytest.raises(TransparencyError, match="other roots"):
        check_consistency(
            consistency_proof(rewritten, old_size, new_size),
            old_size=old_size,
            old_root=REFERENCE_ROOTS[old_size],
            new_size=new_size,
            new_root=tree_root(rewritten, new_size),
        )


def test_trees_of_one_size_are_consistent_only_if_they_are_the_same() -> None:
    for size in range(1, MAX_SIZE + 1):
        root = REFERENCE_ROOTS[size]
        assert consistency_proof(TREE, size, size) == ()
        check_consistency([], old_size=size, old_root=root, new_size=size, new_root=root)
        for proof, new_root in (([], LEAVES[-1]), ([root], root), ([LEAVES[-1]], LEAVES[-1])):
            with pytest.raises(TransparencyError):
                check_consistency(
                    proof, old_size=size, old_root=root, new_size=size, new_root=new_root
                )


@pytest.mark.parametrize(
    ("old_size", "new_size"),
    [(0, 0), (0, 5), (-1, 5), (6, 5), (5, 0), (5, -1), (1, MAX_TREE_SIZE + 1)],
)
def test_sizes_that_are_zero_or_fall_are_refused(old_size: int, new_size: int) -> None:
    with pytest.raises(TransparencyError) as asked:
        consistency_proof(TREE, old_size, new_size)
    with pytest.raises(TransparencyError) as checked:
        check_consistency(
            [], old_size=old_size, old_root=EMPTY_ROOT, new_size=new_size, new_root=EMPTY_ROOT
        )

    assert str(asked.value) == str(checked.value)
    assert asked.value.hint
