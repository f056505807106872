"""The mapping network E and its export to plain arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nsmark.core.mlp import Layer


class Extractor(nn.Module):
    """Linear layers with ReLU between: outputs → watermark space (paper: E)."""

    def __init__(
        self, output_dim: int, hidden_sizes: Sequence[int], vector_length: int, seed: int
    ) -> None:
        super().__init__()
        sizes = [output_dim, *hidden_sizes, vector_length]
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList()
        for fan_in, fan_out in itertools.pairwise(sizes):
            linear = nn.Linear(fan_in, fan_out)
            # torch's own start, drawn from our generator: no global seed is touched.
            bound = fan_in**-0.5
            for parameter in (linear.weight, linear.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
            self.layers.append(linear)

    def forward(self, outputs: Tensor) -> Tensor:
        """Map (batch, output_dim) to (batch, vector_length)."""
        for depth, layer in enumerate(self.layers):
            outputs = layer(outputs)
            if depth + 1 < len(self.layers):
                outputs = torch.relu(outputs)
        return outputs

    def to_layers(self) -> list[Layer]:
        """Return weights and biases as float32 arrays, as key files hold them."""
        return [
            (_array(layer.weight), _array(layer.bias))
            for layer in self.layers
            if isinstance(layer, nn.Linear)
        ]


def _array(parameter: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.ascontiguousarray(parameter.detach().float().cpu().numpy())
