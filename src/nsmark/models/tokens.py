"""Batches of token sequences, padded and masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nsmark.models.batching import TokenIds, pad_arrays


@dataclass(frozen=True, slots=True)
class Tokens:
    """A padded batch."""

    input_ids: Tensor
    attention_mask: Tensor
    is_full: bool
    """Whether nothing is padded: then models run faster without the mask."""

    def __len__(self) -> int:
        return len(self.input_ids)

    def rows(self, start: int, stop: int) -> Tokens:
        """Return some of the rows."""
        if (start, stop) == (0, len(self)):
            return self
        return Tokens(self.input_ids[start:stop], self.attention_mask[start:stop], self.is_full)

    def pick(self, rows: Sequence[int]) -> Tokens:
        """Return some of the rows, by number."""
        if list(rows) == list(range(len(self))):
            return self
        index = to_device(torch.tensor(rows), self.input_ids.device)
        return Tokens(self.input_ids[index], self.attention_mask[index], self.is_full)

    def to(self, device: torch.device) -> Tokens:
        """Return the batch on a device, without waiting for the copy."""
        ids, mask = (to_device(t, device) for t in (self.input_ids, self.attention_mask))
        return Tokens(ids, mask, self.is_full)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor without waiting for a GPU; for our small ones pinning would cost more."""
    return tensor.to(device, non_blocking=True)


def pad_tokens(sequences: Sequence[TokenIds], pad_id: int, side: str) -> Tokens:
    """Make a batch of token sequences, filled up on one side."""
    ids, mask = pad_arrays(sequences, pad_id, side)
    return Tokens(torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)), bool(mask.all()))
