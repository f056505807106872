"""Changes of a model's weights that need no training (torch)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks

WeightChange = Callable[[Encoder], None]
"""Changes a model in place."""


def prune(share: float) -> WeightChange:
    """Set the smallest weights of every linear layer to zero."""

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        for weight in _linear_weights(encoder):
            count = int(share * weight.numel())
            if count:
                limit = weight.abs().flatten().kthvalue(count).values
                weight[weight.abs() <= limit] = 0.0

    return change


def add_noise(share: float, seed: int) -> WeightChange:
    """Add noise in proportion to the standard deviation of every weight matrix."""

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        generator = torch.Generator().manual_seed(seed)
        for weight in _linear_weights(encoder):
            noise = torch.randn(weight.shape, generator=generator).to(weight.device)
            weight += share * weight.std() * noise

    return change


def quantise(bits: int) -> WeightChange:
    """Round every row of every weight matrix to so many bits."""

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        most = 2 ** (bits - 1) - 1
        for weight in _linear_weights(encoder):
            step = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / most
            weight.copy_((weight / step).round() * step)

    return change


def reinitialise(num_layers: int | None, seed: int) -> WeightChange:
    """Draw the weights of the last so many layers anew; None draws all of the model's.

    Every weight keeps its mean and its spread, whatever rule the family initialises by.
    """

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        generator = torch.Generator().manual_seed(seed)
        layers = list(blocks(encoder.network))
        parts: list[nn.Module] = [encoder] if num_layers is None else list(layers[-num_layers:])
        for part in parts:
            for weight in part.parameters():
                if weight.dim() > 1:
                    noise = torch.randn(weight.shape, generator=generator).to(weight.device)
                    weight.copy_(weight.mean() + weight.std() * noise)

    return change


def leave_out_layers(count: int) -> WeightChange:
    """Take away the last so many layers: the model is read at an earlier one."""

    def change(encoder: Encoder) -> None:
        layers = blocks(encoder.network)
        holder = next(
            module
            for module in encoder.network.modules()
            if isinstance(module, nn.ModuleList) and list(module) == layers
        )
        del holder[len(layers) - count :]

    return change


def _linear_weights(encoder: Encoder) -> Iterator[Tensor]:
    """Yield the weight matrices of the transformer's layers, not its embeddings."""
    for layer in blocks(encoder.network):
        for name, weight in layer.named_parameters():
            if weight.dim() == 2 and name.endswith("weight"):
                yield weight
