"""Changes of a model's weights that need no training (torch)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nsmark.errors import ModelError
from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks

WeightChange = Callable[[Encoder], None]
"""Changes a model in place."""


def prune(share: float) -> WeightChange:
    """Set the smallest weights of every linear layer to zero."""

    def change(encoder: Encoder) -> None:
        for weight in linear_weights(encoder):
            _prune_together([weight], share)

    return change


def prune_globally(share: float) -> WeightChange:
    """Set the smallest weights of all linear layers to zero, by one limit for all of them."""

    def change(encoder: Encoder) -> None:
        _prune_together(linear_weights(encoder), share)

    return change


def prune_feed_forward(share: float) -> WeightChange:
    """Prune the last matrix of every layer alone, where its feed-forward part ends."""

    def change(encoder: Encoder) -> None:
        for weight in last_weights(encoder):
            _prune_together([weight], share)

    return change


def add_noise(share: float, seed: int) -> WeightChange:
    """Add noise in proportion to the standard deviation of every weight matrix."""

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        generator = torch.Generator().manual_seed(seed)
        for weight in linear_weights(encoder):
            noise = torch.randn(weight.shape, generator=generator).to(weight.device)
            weight += share * weight.std() * noise

    return change


def quantise(bits: int) -> WeightChange:
    """Round every row of every weight matrix to so many bits."""

    @torch.no_grad()
    def change(encoder: Encoder) -> None:
        most = 2 ** (bits - 1) - 1
        for weight in linear_weights(encoder):
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


def linear_weights(encoder: Encoder) -> list[Tensor]:
    """Return the weight matrices of the transformer's layers, not its embeddings.

    Raises:
        ModelError: It has no layers that we know.
    """
    found = [weight for layer in blocks(encoder.network) for weight in _matrices(layer)]
    if not found:
        raise ModelError(
            f"no layers were found in this model of family {encoder.folder.model_type!r}",
            "give a transformer",
        )
    return found


def last_weights(encoder: Encoder) -> list[Tensor]:
    """Return the last weight matrix of every layer, where its feed-forward part ends."""
    return [weight for layer in blocks(encoder.network) for weight in _matrices(layer)[-1:]]


def modules_of_last_weights(encoder: Encoder) -> list[str]:
    """Return the names of the modules that have these matrices, in the transformer."""
    found = {id(weight) for weight in last_weights(encoder)}
    return [
        name.removesuffix(".weight")
        for name, weight in encoder.network.named_parameters()
        if id(weight) in found
    ]


def _matrices(layer: nn.Module) -> list[Tensor]:
    # Adapters in training stand beside the layer's own matrices, and are none of them.
    return [
        weight
        for name, weight in layer.named_parameters()
        if weight.dim() == 2 and name.endswith("weight") and ".lora_" not in name
    ]


@torch.no_grad()
def _prune_together(weights: list[Tensor], share: float) -> None:
    """Set the smallest of these to zero; those that are zero already count among them."""
    count = int(share * sum(weight.numel() for weight in weights))
    if not count:
        return
    sizes = torch.cat([weight.abs().flatten().float().cpu() for weight in weights]).numpy()
    sizes.partition(count - 1)  # in place: there may be billions of them
    limit = float(sizes[count - 1])
    for weight in weights:
        weight[weight.abs() <= limit] = 0.0
