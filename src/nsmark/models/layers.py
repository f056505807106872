"""A transformer's layers, and doing without their activations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks(transformer: nn.Module) -> list[nn.Module]:
    """Return a transformer's layers: the list of modules of one kind that holds most weights."""
    lists = [m for m in transformer.modules() if isinstance(m, nn.ModuleList)]
    alike = [list(each) for each in lists if len({type(layer) for layer in each}) == 1]
    if not alike:
        return []
    return max(alike, key=lambda layers: sum(p.numel() for m in layers for p in m.parameters()))


@contextlib.contextmanager
def recomputing(transformer: nn.Module, wanted: bool) -> Iterator[None]:
    """Keep no activations inside layers; the backward pass computes them again."""
    layers = blocks(transformer) if wanted else []
    for layer in layers:
        layer.forward = _recomputed(layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run
