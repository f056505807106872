"""Named changes of a model, from which controls and simulated thefts are made (torch)."""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.models.encoder import Encoder
from nsmark.transforms.finetuning import Finetuning, finetune
from nsmark.transforms.weights import (
    WeightChange,
    add_noise,
    leave_out_layers,
    prune,
    quantise,
    reinitialise,
)

_MOST_LAYERS_LEFT_OUT = 3


def kept_alterations(
    texts: Sequence[str], *, num_tasks: int, seed: int, finetuning: Finetuning | None = None
) -> dict[str, WeightChange]:
    """Return changes after which a model is still the same model, by name.

    Args:
        texts: What to fine-tune on.
        num_tasks: Fine-tuned copies, each on a task of its own.
        seed: Of tasks and noise: other seeds give other models of the same kinds.
        finetuning: How to fine-tune; its seed is replaced.
    """
    how = finetuning or Finetuning()
    tasks = [finetune(texts, how.with_seed(1000 * seed + task)) for task in range(num_tasks)]
    changes: dict[str, WeightChange] = {"as it is": lambda _: None}
    changes |= {f"fine-tuned {number}": task for number, task in enumerate(tasks, 1)}
    changes |= {f"pruned {share:.0%}": prune(share) for share in (0.2, 0.3, 0.4, 0.5)}
    changes |= {f"weights + {share:.0%} noise": add_noise(share, seed) for share in (0.05, 0.1)}
    changes |= {f"{bits}-bit weights": quantise(bits) for bits in (8, 4)}
    if tasks:
        changes["fine-tuned 1, pruned 30%"] = _after(tasks[0], prune(0.3))
    return changes


def broken_alterations(num_layers: int, *, seed: int) -> dict[str, WeightChange]:
    """Return changes after which little of a model is left, but its ancestry; for controls."""
    changes = {
        "weights + 20% noise": add_noise(0.2, seed),
        "weights + 40% noise": add_noise(0.4, seed + 1),
        "last layer drawn anew": reinitialise(1, seed),
        "all weights drawn anew": reinitialise(None, seed + 1),
        "all weights drawn anew, again": reinitialise(None, seed + 2),
    }
    if num_layers > 2:
        changes["last two layers drawn anew"] = reinitialise(2, seed + 3)
    for count in range(1, min(_MOST_LAYERS_LEFT_OUT, num_layers - 1) + 1):
        changes[f"without its last {count} layers"] = leave_out_layers(count)
    return changes


def _after(*changes: WeightChange) -> WeightChange:
    def change(encoder: Encoder) -> None:
        for each in changes:
            each(encoder)

    return change
