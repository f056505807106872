"""Fine-pruning: units that clean texts do not use are pruned, then the rest is fine-tuned.

A backdoor is thought to sit in units that only its trigger wakes. In a transformer these are the
hidden units of the feed-forward layers, each written out by one column of the layer behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_ranges
from nsmark.attacks.training import check_task_settings, train_on_task
from nsmark.errors import ModelError
from nsmark.models.batching import equal_length_batches
from nsmark.models.encoder import TOKENS_PER_BATCH, Encoder
from nsmark.models.layers import blocks

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class FinePruningSettings:
    """Settings of fine-pruning."""

    share: float = 0.3
    """Share of the hidden units of every feed-forward layer that is pruned."""

    num_texts: int = 500
    """Clean texts that show which units are used."""

    epochs: float = 1.0
    """Passes over the task's texts afterwards."""

    steps: int = 0
    """Batches; 0 goes by ``epochs``."""

    learning_rate: float = 2e-5
    """Of the first step; it falls linearly to zero."""

    batch_size: int = 32
    """Texts in a step."""

    seed: int = 0
    """Seed of the clean texts, the head, the order of the texts and dropout."""

    def __post_init__(self) -> None:
        check_ranges(self, share=(0, 0.99), num_texts=(1, 10**6))
        check_task_settings(self)


class WritingLayer:
    """The layer that writes the hidden units of a feed-forward layer out, one column for each."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @property
    def columns(self) -> Tensor:
        """Weights, shape (width, units): a view, which can be changed."""
        weight: Any = self.module.weight
        matrix: Tensor = weight.detach()
        # GPT-2 stores the transpose of what all others do.
        return matrix if isinstance(self.module, nn.Linear) else matrix.T

    def is_wide(self, width: int) -> bool:
        """Return whether it writes more units than there are dimensions to write to."""
        rows, units = self.columns.shape
        return rows == width < units


def writing_layers(encoder: Encoder) -> list[WritingLayer]:
    """Return the layer behind the hidden units of every feed-forward layer.

    Raises:
        ModelError: There are none.
    """
    width = int(encoder.network.config.hidden_size)
    found = []
    for block in blocks(encoder.network):
        layers = [WritingLayer(each) for each in block.modules() if _is_matrix(each)]
        wide = [layer for layer in layers if layer.is_wide(width)]
        if wide:
            # Attention may be wider than the model, too, but not as wide as this.
            found.append(max(wide, key=lambda layer: layer.columns.shape[1]))
    if not found:
        raise ModelError("no feed-forward layers were found in this model", "choose another attack")
    return found


def _is_matrix(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


@torch.no_grad()
def unit_activity(
    encoder: Encoder, layers: Sequence[WritingLayer], texts: Sequence[str]
) -> list[Tensor]:
    """Return how active each hidden unit is: its size, on average over all tokens."""
    sums = [torch.zeros(layer.columns.shape[1], dtype=torch.float64) for layer in layers]
    tokens = 0

    def listener(total: Tensor) -> Any:
        def listen(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            sizes = inputs[0].abs().flatten(0, -2).sum(dim=0, dtype=torch.float64)
            total.add_(sizes.cpu())

        return listen

    hooks = [
        layer.module.register_forward_pre_hook(listener(total))
        for layer, total in zip(layers, sums, strict=True)
    ]
    try:
        sequences = encoder.eval().token_ids(texts)
        budget = TOKENS_PER_BATCH.get(encoder.device.type, 2048)
        # Never two lengths together: padding would count as text.
        for rows in equal_length_batches([len(each) for each in sequences], budget):
            encoder(encoder.pad([sequences[row] for row in rows]))
            tokens += sum(len(sequences[row]) for row in rows)
    finally:
        for hook in hooks:
            hook.remove()
    return [total / max(1, tokens) for total in sums]


def apply(stolen: Stolen, settings: FinePruningSettings, material: Material) -> Facts:
    """Prune the units that are least active on clean texts, then train what is left."""
    encoder = stolen.encoder
    layers = writing_layers(encoder)
    texts = stolen.serving.texts(material.some_texts(settings.num_texts, settings.seed))
    pruned = []
    for activity in unit_activity(encoder, layers, texts):
        count = int(settings.share * len(activity))
        pruned.append(activity.argsort(stable=True)[:count].to(encoder.device))

    def prune() -> None:
        for layer, units in zip(layers, pruned, strict=True):
            layer.columns[:, units] = 0.0

    # Again after every step: what is pruned does not grow back.
    facts = train_on_task(stolen, settings, material, begin=prune, after_step=prune)
    return facts | {
        "pruned_units": sum(map(len, pruned)),
        "units": sum(layer.columns.shape[1] for layer in layers),
    }


RECIPE = Recipe(
    source="Fine-Pruning: Defending Against Backdooring Attacks on Deep Neural Networks "
    "(Liu, Dolan-Gavitt and Garg, 2018); NSmark paper, Tab. fp",
    deviations="Hidden units of all feed-forward layers in place of the channels of the last "
    "convolution; a fixed share of each in place of a limit on lost accuracy; a unit's activity "
    "is its mean absolute value, since it may be negative here.",
    cost="some hundred texts to find the units, then fine-tuning",
    keeps="nearly all on the task at small shares",
    settings=FinePruningSettings,
    apply=apply,
    trials=("", "share=0.6"),
)
