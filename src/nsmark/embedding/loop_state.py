"""Where a training stands, beside its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsmark.embedding.divergence import DivergenceWatch
from nsmark.embedding.memory import MemoryPlan
from nsmark.embedding.progress import HeldOut, HistoryRow


@dataclass(slots=True)
class LoopState:
    """Where the loop stands, beside the tensors."""

    step: int = 0
    """Steps done."""
    held_since: int | None = None
    """First step at which the targets held: all the learning-rate schedule needs."""
    heldout: HeldOut | None = None
    history: list[HistoryRow] = field(default_factory=list)
    recent: dict[str, float] = field(default_factory=dict)
    """The newest of every loss: some are there in every other step only."""
    watch: DivergenceWatch = field(default_factory=DivergenceWatch)
    plan: MemoryPlan | None = None
    """How steps are computed, once that is settled."""
    seconds: float = 0.0
    """Training time so far."""
