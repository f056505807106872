"""The audit path of an entry, step by step, as a reader can compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nsmark_authority.transparency import hash_children


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One hash of the path."""

    side: Literal["left", "right"]
    """Where the sibling stands."""

    sibling: str
    result: str
    """Hash of both; the last one is the root."""


def proof_steps(proof: Sequence[bytes], *, leaf: bytes, index: int, size: int) -> list[ProofStep]:
    """Return the way from a leaf to the root, for a proof that was checked."""
    steps, here, node, last = [], leaf, index, size - 1
    for sibling in proof:
        side: Literal["left", "right"] = "left" if node & 1 or node == last else "right"
        if side == "left":
            here = hash_children(sibling, here)
            while node and not node & 1:  # a last node without sibling is its own parent
                node, last = node >> 1, last >> 1
        else:
            here = hash_children(here, sibling)
        node, last = node >> 1, last >> 1
        steps.append(ProofStep(side, sibling.hex(), here.hex()))
    return steps
