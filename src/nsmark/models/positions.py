"""Hidden states that are to stay where a reference has them, at every position of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_SMALLEST = 0.1
"""Of a layer's median size: entries that never move would otherwise be held beyond all others."""


@dataclass(frozen=True, slots=True)
class HeldPositions:
    """The states that the first texts of a batch are held to, and what counts as far."""

    states: Tensor
    """The reference's, shape (layers, texts, length, width)."""
    scales: Tensor
    """Usual size of each entry, shape (layers, width)."""

    def distance(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the squared distance, a mean over layers, positions, entries; a sum over texts.

        Args:
            states: Of each layer, shape (texts or more, length, width).
            mask: 1 where there is a token, shape (texts or more, length).
        """
        count = self.states.shape[1]
        moved = torch.stack([state[:count] for state in states]).float() - self.states
        squares = (moved / self.scales[:, None, None]).square().mean(dim=3).mean(dim=0)
        there = mask[:count]
        return (squares * there).sum(dim=1).div(there.sum(dim=1).clamp_min(1)).sum()


class Passed(NamedTuple):
    """What one pass through a model gives."""

    outputs: Tensor
    language: Tensor
    """Sum of the cross-entropies of predicted tokens."""
    positions: Tensor
    """Sum of the distances of hidden states to those they are held to."""


def usual_sizes(states: Tensor, mask: Tensor) -> Tensor:
    """Return each entry's deviation over all positions, shape (layers, width)."""
    there = mask.bool()
    sizes = torch.stack([state[there].std(dim=0, unbiased=False) for state in states])
    return sizes.clamp_min(_SMALLEST * sizes.median(dim=1, keepdim=True).values).clamp_min(1e-12)
