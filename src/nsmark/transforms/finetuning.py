"""Further training on a made-up task: what every user of a model does (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from nsmark.errors import TextPoolError
from nsmark.models.encoder import Encoder
from nsmark.transforms.weights import WeightChange

_BALANCE = (0.35, 0.65)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finetuning:
    """How long and how fast."""

    steps: int = 150
    batch_size: int = 16
    learning_rate: float = 5e-5
    max_words: int = 24
    """Texts are cut: what is learned matters more than how long it takes."""
    seed: int = 0
    """Of the task, the head and the order of the texts."""

    def with_seed(self, seed: int) -> Finetuning:
        """Return the same with another seed."""
        return replace(self, seed=seed)


def make_task(texts: Sequence[str], seed: int) -> list[int]:
    """Label texts by whether they contain one of a few random words, about half of them do.

    The words are common ones, so that the task can be learned from what texts are about and is
    another one for every seed.

    Raises:
        TextPoolError: The texts are so alike that no words divide them.
    """
    rng = np.random.default_rng(seed)
    bags = [set(text.lower().split()) for text in texts]
    counts: dict[str, int] = {}
    for bag in bags:
        for word in bag:
            counts[word] = counts.get(word, 0) + 1
    common = sorted(word for word, count in counts.items() if 0.005 <= count / len(texts) <= 0.15)
    labels, covered = [0] * len(texts), 0
    for word in rng.permutation(common):
        for place, bag in enumerate(bags):
            if word in bag and not labels[place]:
                labels[place], covered = 1, covered + 1
        if covered >= _BALANCE[0] * len(texts):
            break
    if not _BALANCE[0] <= covered / max(1, len(texts)) <= _BALANCE[1]:
        raise TextPoolError("no words divide the texts into two halves", "give more varied texts")
    return labels


def finetune(texts: Sequence[str], settings: Finetuning) -> WeightChange:
    """Train all weights through a new head on a made-up task."""

    def change(encoder: Encoder) -> None:
        short = [" ".join(text.split()[: settings.max_words]) for text in texts]
        labels = torch.tensor(make_task(short, settings.seed), device=encoder.device)
        sequences = encoder.token_ids(short)
        rng = np.random.default_rng(settings.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            head = nn.Linear(encoder.output_dim, 2).to(encoder.device)
        weights = [parameter for parameter in encoder.parameters() if parameter.is_floating_point()]
        for parameter in weights:
            parameter.requires_grad_(True)
        optimiser = torch.optim.AdamW(
            [
                {"params": weights, "lr": settings.learning_rate},
                {"params": list(head.parameters()), "lr": 20 * settings.learning_rate},
            ],
            weight_decay=0.0,
        )
        for step in range(settings.steps):
            for group in optimiser.param_groups:
                group.setdefault("start", group["lr"])
                group["lr"] = group["start"] * (1 - step / settings.steps)
            rows = rng.choice(len(sequences), min(settings.batch_size, len(sequences)), False)
            outputs = encoder(encoder.pad([sequences[row] for row in rows]))
            # Whatever length outputs have: a head starts with logits of ordinary size.
            size = outputs.detach().norm(dim=1).mean().clamp_min(1e-6)
            logits = head(outputs * (encoder.output_dim**0.5 / size))
            loss = nn.functional.cross_entropy(logits, labels[rows])
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
        encoder.requires_grad_(False)

    return change
