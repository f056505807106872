"""How a step is cut to fit the device's memory, and how much it took."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from nsmark.errors import EmbeddingError

_MOST_PIECES_BEFORE_RECOMPUTING = 8


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How a step is computed."""

    pieces: int = 1
    """Parts, one after the other; more than one cost a further forward pass."""
    recompute: bool = False
    """Whether activations are computed twice instead of kept."""


def candidate_plans(
    batch_size: int, pieces: int | None, recompute: bool | None
) -> Iterator[MemoryPlan]:
    """Yield plans from the fastest to the leanest, within what the settings leave open.

    Pieces cost one more forward pass however many they are, recomputation another one: so first
    a few pieces, then recomputation.
    """
    for again in (False, True) if recompute is None else (recompute,):
        count = 1 if pieces is None else pieces
        most = batch_size if again or recompute is False else _MOST_PIECES_BEFORE_RECOMPUTING
        while True:
            yield MemoryPlan(count, again)
            if pieces is not None or count >= min(most, batch_size):
                break
            count = min(2 * count, most, batch_size)


def first_that_fits(
    plans: Iterator[MemoryPlan], try_step: Callable[[MemoryPlan], None]
) -> MemoryPlan:
    """Return the first plan whose trial step does not run out of memory.

    Raises:
        EmbeddingError: None fits.
    """
    for plan in plans:
        if _fits(plan, try_step):
            return plan
    raise EmbeddingError(
        "the model does not fit the device, not even one text at a time",
        "use --method lora, a shorter --max-length, or several GPUs with --parallel fsdp",
    )


def _fits(plan: MemoryPlan, try_step: Callable[[MemoryPlan], None]) -> bool:
    try:
        try_step(plan)
    except torch.OutOfMemoryError:
        return False
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True


def peak_memory(device: torch.device) -> int:
    """Return the most bytes in use so far: of the GPU by us, else of this process's memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
