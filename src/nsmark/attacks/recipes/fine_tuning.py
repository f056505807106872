"""Fine-tuning: all weights trained further on a task of the thief's own (paper: Tab. down)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.training import check_task_settings, train_on_task

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningSettings:
    """Settings of fine-tuning."""

    epochs: float = 1.0
    """Passes over the task's texts."""

    steps: int = 0
    """Batches; 0 goes by ``epochs``."""

    learning_rate: float = 2e-5
    """Of the first step; it falls linearly to zero."""

    batch_size: int = 32
    """Texts in a step."""

    seed: int = 0
    """Seed of the head, the order of the texts and dropout."""

    def __post_init__(self) -> None:
        check_task_settings(self)


def apply(stolen: Stolen, settings: FineTuningSettings, material: Material) -> Facts:
    """Train all weights through a new head on the task."""
    return train_on_task(stolen, settings, material)


RECIPE = Recipe(
    source="usual practice since BERT (Devlin et al., 2019); NSmark paper, Tab. down",
    deviations="One linear head on the model's outputs, whatever its pooling; learning rate "
    "without warm-up; the task is the caller's, by default topics of the built-in corpus.",
    cost="one to a few passes over some thousand labelled texts",
    keeps="more than it had on the task, somewhat less elsewhere",
    settings=FineTuningSettings,
    apply=apply,
    trials=("", "epochs=3,learning_rate=5e-5"),
)
