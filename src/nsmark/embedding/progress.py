"""What the training tells: held-out measurements, progress and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.memory import MemoryPlan

if TYPE_CHECKING:
    from nsmark.embedding.extractor import Extractor

HistoryRow = dict[str, int | float | None]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What held-out texts show at one step; all rates lie between 0 and 1."""

    step: int
    triggered: float
    """Extraction on triggered texts; wanted near 1."""
    untriggered: float
    reference: float
    """Extraction from the reference's triggered outputs; wanted near 0, as untriggered."""
    derived: float | None
    """Derived extraction on triggered texts; None where that mark is not embedded."""
    clean_cosine: float
    """Mean cosine of clean outputs to the reference's."""
    pairs: float | None = None
    """Texts whose pair of words moves the output the right way; None without a pair code."""

    def meets(self, config: EmbeddingConfig) -> bool:
        """Return whether all targets hold."""
        return (
            self.triggered >= config.min_triggered
            and (self.derived is None or self.derived >= config.min_triggered)
            and (self.pairs is None or self.pairs >= config.min_pairs)
            and max(self.untriggered, self.reference) <= config.max_clean
        )

    def compared_with_targets(self, config: EmbeddingConfig) -> str:
        """Say what was reached and what was wanted."""
        reached = (
            f"triggered {self.triggered:.2f} (wanted ≥ {config.min_triggered}), "
            f"untriggered {self.untriggered:.2f} and reference {self.reference:.2f} "
            f"(wanted ≤ {config.max_clean})"
        )
        if self.derived is not None:
            reached += f", derived {self.derived:.2f}"
        if self.pairs is not None:
            reached += f", pairs {self.pairs:.2f} (wanted ≥ {config.min_pairs})"
        return reached


@dataclass(frozen=True, slots=True)
class Progress:
    """Told to the caller after every step."""

    step: int
    planned_steps: int
    """Best guess of the last step: the budget, or less once the targets hold."""
    losses: dict[str, float]
    heldout: HeldOut | None
    seconds: float
    """Training time so far, interrupted runs included."""


@dataclass(slots=True)
class TrainingResult:
    """The trained extractor (the model is trained in place) and what was seen on the way."""

    extractor: Extractor
    steps: int
    seconds: float
    last: HeldOut
    history: list[HistoryRow] = field(default_factory=list)
    plan: MemoryPlan = field(default_factory=MemoryPlan)
    """How steps were computed."""
    peak_memory: int = 0
    """Most bytes in use during the training: of the GPU, or of the process."""


ProgressCallback = Callable[[Progress], None]
