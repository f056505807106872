"""The processes that train together: one, or those that torchrun started.

Every process works on its share of a step's texts. Outputs are few numbers, so they are gathered,
and every process computes the same losses over the whole batch: nothing depends on how many
processes there are, beyond rounding.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nsmark.errors import ConfigError

Parallel = Literal["ddp", "fsdp"]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Group:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1
    parallel: Parallel = "ddp"
    """Whether every process holds the whole model, or a part of every layer."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    @property
    def shards(self) -> bool:
        """Whether the model's layers are divided among the processes."""
        return self.parallel == "fsdp" and self.size > 1

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Return this process's share, a run of neighbours; all shares are equally long."""
        count = len(items) // self.size
        return items[self.rank * count : (self.rank + 1) * count]

    def gather(self, local: Tensor) -> Tensor:
        """Return everyone's rows, in order; all have equally many."""
        if self.size == 1:
            return local
        parts = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    def own(self, rows: Tensor) -> Tensor:
        """Return this process's rows of a gathered tensor."""
        count = len(rows) // self.size
        return rows[self.rank * count : (self.rank + 1) * count]

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    def agree(self, value: Tensor) -> Tensor:
        """Return what the first process has: rounding may not part the processes' ways."""
        if self.size == 1:
            return value
        agreed = value.detach().clone()
        dist.broadcast(agreed, src=0)
        return agreed

    def agree_on_weights(self, module: nn.Module) -> None:
        """Give every process the first one's weights."""
        if self.size > 1:
            for parameter in module.parameters():
                dist.broadcast(parameter.data, src=0)

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.size > 1:
            dist.barrier()


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds: all of it, unless it is divided."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


@contextlib.contextmanager
def torchrun_group(device: str, parallel: Parallel) -> Iterator[tuple[Group, str]]:
    """Join the processes that torchrun started; yield the group and this process's device."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda:"):
        raise ConfigError("device", device, "leave the number to torchrun: cuda, cpu or auto")
    if device == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise ConfigError("device", device, f"has no GPU number {local_rank}")
        device = f"cuda:{local_rank}"
        torch.cuda.set_device(local_rank)
    # Long: the others wait while the first one saves and measures. A process that fails ends all.
    patience = datetime.timedelta(hours=6)
    dist.init_process_group("nccl" if device != "cpu" else "gloo", timeout=patience)
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), parallel), device
        dist.barrier()  # one that leaves while another is still at work takes it down
    finally:
        dist.destroy_process_group()
