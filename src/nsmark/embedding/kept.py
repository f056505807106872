"""The reference's outputs on clean texts, kept for when a text comes round again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nsmark.models.tokens import to_device


class KeptOutputs:
    """Outputs by text number.

    They are part of a checkpoint: computed again in other company, they would differ in their
    last bits.
    """

    def __init__(self, num_texts: int, output_dim: int, device: torch.device, max_bytes: int):
        """Make room.

        Args:
            num_texts: Texts there are.
            output_dim: Entries of an output.
            device: Where they are kept.
            max_bytes: Nothing is kept if all would take more than this.
        """
        self._shape = (num_texts, output_dim)
        self.enabled = 4 * num_texts * output_dim <= max_bytes
        self._has = np.zeros(num_texts if self.enabled else 0, dtype=bool)
        self._outputs = torch.zeros((len(self._has), output_dim), device=device)

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Return the places of those texts whose outputs are not known."""
        if not self.enabled:
            return list(range(len(numbers)))
        return [place for place, number in enumerate(numbers) if not self._has[number]]

    def completed(self, numbers: Sequence[int], missing: Sequence[int], outputs: Tensor) -> Tensor:
        """Return the outputs of all texts: those given for the missing ones, else those known."""
        if len(missing) == len(numbers):
            return outputs
        result = self._outputs[self._index(numbers)]
        if missing:
            result[self._index(missing)] = outputs
        return result

    def put(self, numbers: Sequence[int], outputs: Tensor) -> None:
        """Keep outputs; those known already stay as they are."""
        new = self.missing(numbers)
        if not self.enabled or not new:
            return
        rows = [numbers[place] for place in new]
        self._outputs[self._index(rows)] = outputs[self._index(new)]
        self._has[rows] = True

    def _index(self, places: Sequence[int]) -> Tensor:
        # A plain list would be copied to a GPU in a way that waits for all it has to do.
        return to_device(torch.tensor(places), self._outputs.device)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that is kept, for a checkpoint."""
        numbers = np.flatnonzero(self._has)
        rows = torch.from_numpy(numbers)
        return {"numbers": rows, "outputs": self._outputs[rows.to(self._outputs.device)]}

    def restore(self, numbers: Tensor, outputs: Tensor) -> None:
        """Put back what a checkpoint held.

        Raises:
            ValueError: It does not fit.
        """
        fits = (
            numbers.dim() == 1
            and numbers.dtype == torch.int64
            and outputs.shape == (len(numbers), self._shape[1])
            and outputs.dtype == torch.float32
        )
        if not fits or not all(0 <= number < len(self._has) for number in numbers.tolist()):
            raise ValueError("kept outputs of other texts")
        places = numbers.tolist()
        self.put(places, outputs.to(self._outputs.device))
