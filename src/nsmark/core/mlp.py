"""The extractor's forward pass from plain arrays, so that verification needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import EvidenceError

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weight (out, in) and bias (out,) of one linear layer."""


def mlp_forward(inputs: NDArray[np.floating], layers: Sequence[Layer]) -> NDArray[np.float32]:
    """Apply linear layers with ReLU between them.

    Args:
        inputs: Shape (num_texts, input_dim).
        layers: Weight and bias of each layer, first to last.

    Returns:
        Shape (num_texts, output width of the last layer), float32.
    """
    hidden = np.asarray(inputs, dtype=np.float32)
    for depth, (weight, bias) in enumerate(layers):
        if hidden.shape[1] != weight.shape[1]:
            raise EvidenceError(
                f"outputs have {hidden.shape[1]} dimensions, the extractor wants {weight.shape[1]}",
                "measure a model of the key's output dimension",
            )
        hidden = hidden @ weight.T + bias
        if depth + 1 < len(layers):
            np.maximum(hidden, 0.0, out=hidden)
    return hidden
