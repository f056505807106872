"""Training of copies: on tasks, towards other outputs; nothing here knows of a mark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from evidence_table.tasks import Task
from nsmark.models.encoder import Encoder

BATCH_SIZE = 32
HEAD_RATE = 1e-3


@dataclass(frozen=True)
class Head:
    """A trained linear classifier over outputs."""

    layer: nn.Linear
    scale: float
    """Factor on outputs before the layer, so that their entries have size 1."""

    @torch.no_grad()
    def logits(self, outputs: np.ndarray) -> np.ndarray:
        """Return the logits of outputs, shape (num_texts, classes)."""
        rows = torch.from_numpy(outputs).to(self.layer.weight.device)
        return self.layer(self.scale * rows).cpu().numpy()


def tune(
    encoder: Encoder,
    task: Task,
    *,
    steps: int | None = None,
    rate: float = 2e-5,
    watch: Callable[[int], None] | None = None,
    watched: Collection[int] = (),
) -> Head:
    """Train all weights and a new head in place.

    Args:
        encoder: What is trained.
        task: Texts with labels.
        steps: Batches of 32; by default one pass over the task.
        rate: Learning rate of the model.
        watch: Told the step after each of the watched ones.
        watched: Steps at which to look.
    """
    sequences = encoder.token_ids(task.texts)
    labels = torch.tensor(task.labels, device=encoder.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(encoder.output_dim, max(task.labels) + 1).to(encoder.device)
    sample = encoder.encode_tokens(sequences[:256])
    head = Head(layer, encoder.output_dim**0.5 / max(float(sample.norm(dim=1).mean()), 1e-6))
    encoder.requires_grad_(True)
    optimiser = torch.optim.AdamW(
        [
            {"params": list(encoder.parameters()), "lr": rate},
            {"params": list(layer.parameters()), "lr": HEAD_RATE},
        ],
        fused=True,
    )
    total = steps or max(1, len(sequences) // BATCH_SIZE)
    for step, rows in enumerate(_batches(len(sequences), total, seed=0), 1):
        outputs = encoder(encoder.pad([sequences[row] for row in rows]))
        loss = nn.functional.cross_entropy(layer(head.scale * outputs), labels[rows])
        _update(optimiser, loss)
        if watch is not None and step in watched:
            watch(step)
    encoder.requires_grad_(False)
    return head


def approach(
    encoder: Encoder, texts: Sequence[str], wanted: np.ndarray, *, steps: int, rate: float
) -> None:
    """Train a model towards given outputs, at a rate that falls to zero."""
    sequences = encoder.token_ids(texts)
    targets = torch.from_numpy(wanted.astype(np.float32)).to(encoder.device)
    encoder.requires_grad_(True)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, fused=True)
    for step, rows in enumerate(_batches(len(sequences), steps, seed=1)):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        outputs = encoder(encoder.pad([sequences[row] for row in rows]))
        _update(optimiser, (outputs - targets[rows]).square().sum(dim=1).mean())
    encoder.requires_grad_(False)


def _batches(count: int, steps: int, seed: int) -> list[list[int]]:
    """Return the rows of every step: each text once before any comes again."""
    rng, size = np.random.default_rng(seed), min(BATCH_SIZE, count)
    passes = -(-steps * size // (count - count % size))
    full = count - count % size
    order = np.concatenate([rng.permutation(count)[:full] for _ in range(passes)])
    return order[: steps * size].reshape(steps, size).tolist()


def _update(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimiser.step()
