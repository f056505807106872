"""Dividing a model's layers among processes (FSDP2), and putting them together again."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks


def shard(encoder: Encoder, device: torch.device, size: int, dtype: torch.dtype) -> None:
    """Divide every layer's weights among the processes, in place.

    A layer's weights are whole only while it computes, in ``dtype``; what each process keeps is
    float32.
    """
    mesh = init_device_mesh(device.type, (size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in blocks(encoder.network):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(encoder, mesh=mesh, mp_policy=policy)
    register_fsdp_forward_method(encoder, "layer_states")


def divide_again(encoder: Encoder) -> None:
    """Give up weights that a forward pass put together and no backward pass has divided again.

    As long as they are whole, the model shows them instead of the ones that are trained.
    """
    for module in encoder.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor put together from all processes' parts; all must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is here, not a copy."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Return this process's part of a whole tensor, divided as ``pattern`` is."""
    if not isinstance(pattern, DTensor):
        return tensor
    on_device = tensor.to(pattern.to_local().device)
    return distribute_tensor(on_device, pattern.device_mesh, pattern.placements)
