"""LoRA fine-tuning: low-rank adapters trained on a task, then merged into the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_ranges
from nsmark.attacks.training import check_task_settings, train_on_task
from nsmark.embedding.adapters import Adapters

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Settings of fine-tuning by adapters."""

    rank: int = 8
    """Rank of the adapters, which stand beside every linear layer."""

    epochs: float = 1.0
    """Passes over the task's texts."""

    steps: int = 0
    """Batches; 0 goes by ``epochs``."""

    learning_rate: float = 5e-4
    """Of the first step; it falls linearly to zero."""

    batch_size: int = 32
    """Texts in a step."""

    seed: int = 0
    """Seed of the adapters, the head, the order of the texts and dropout."""

    def __post_init__(self) -> None:
        check_ranges(self, rank=(1, 4096))
        check_task_settings(self)


def apply(stolen: Stolen, settings: LoraSettings, material: Material) -> Facts:
    """Train adapters through a new head on the task, and merge them."""
    encoder = stolen.encoder
    adapters = Adapters(encoder, settings.rank, settings.seed)
    weights = [weight for weight in encoder.parameters() if weight.requires_grad]

    def merge() -> None:
        adapters.merge()  # which gets all weights ready to be trained
        encoder.requires_grad_(False)

    facts = train_on_task(stolen, settings, material, weights=weights, finish=merge)
    return facts | {"trained_weights": sum(weight.numel() for weight in weights)}


RECIPE = Recipe(
    source="LoRA: Low-Rank Adaptation of Large Language Models (Hu et al., 2021)",
    deviations="Adapters beside all linear layers, not the attention's alone; scale 2, "
    "as is usual now.",
    cost="a pass over some thousand labelled texts, in much less memory than fine-tuning",
    keeps="about what fine-tuning keeps",
    settings=LoraSettings,
    apply=apply,
    trials=("", "rank=32,epochs=3"),
)
