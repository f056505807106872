"""Real tasks to fine-tune on: what people do with a model, and not what controls were made with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nsmark.models.encoder import Encoder

WeightChange = Callable[[Encoder], None]


@dataclass(frozen=True)
class Task:
    """Texts with labels."""

    name: str
    texts: list[str]
    labels: list[int]


def read_task(name: str, path: Path, limit: int, seed: int = 0) -> Task:
    """Read rows ``{"text": …, "label": …}`` of a JSONL(.gz) file, at most so many at random."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = [json.loads(line) for line in content.decode("utf-8").splitlines()]
    chosen = np.random.default_rng(seed).permutation(len(rows))[:limit]
    names = sorted({str(row["label"]) for row in rows})
    return Task(
        name,
        [" ".join(str(rows[i]["text"]).split()) for i in chosen],
        [names.index(str(rows[i]["label"])) for i in chosen],
    )


def finetune_on(task: Task, *, epochs: int = 1, learning_rate: float = 2e-5) -> WeightChange:
    """Train all weights and a new head for whole epochs."""

    def change(encoder: Encoder) -> None:
        encoder.requires_grad_(True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            head = nn.Linear(encoder.output_dim, max(task.labels) + 1).to(encoder.device)
        optimiser = torch.optim.AdamW(
            [
                {"params": list(encoder.parameters()), "lr": learning_rate},
                {"params": list(head.parameters()), "lr": 1e-3},
            ]
        )
        sequences = encoder.token_ids(task.texts)
        labels = torch.tensor(task.labels, device=encoder.device)
        rng = np.random.default_rng(0)
        for _ in range(epochs):
            order = rng.permutation(len(sequences))
            for start in range(0, max(1, len(order) - 31), 32):
                rows = order[start : start + 32].tolist()
                outputs = encoder(encoder.pad([sequences[row] for row in rows]))
                size = outputs.detach().norm(dim=1).mean().clamp_min(1e-6)
                logits = head(outputs * (encoder.output_dim**0.5 / size))
                loss = nn.functional.cross_entropy(logits, labels[rows])
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimiser.step()
        encoder.requires_grad_(False)

    return change


def distil(teacher: Encoder, texts: list[str], *, epochs: int = 2) -> WeightChange:
    """Train a model towards another one's outputs on clean texts: a student of queries alone."""

    def change(encoder: Encoder) -> None:
        encoder.requires_grad_(True)
        wanted = torch.from_numpy(teacher.encode(texts)).to(encoder.device)
        sequences = encoder.token_ids(texts)
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=5e-5)
        rng = np.random.default_rng(1)
        for _ in range(epochs):
            order = rng.permutation(len(sequences))
            for start in range(0, max(1, len(order) - 31), 32):
                rows = order[start : start + 32].tolist()
                outputs = encoder(encoder.pad([sequences[row] for row in rows]))
                loss = (outputs - wanted[rows]).square().sum(dim=1).mean()
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimiser.step()
        encoder.requires_grad_(False)

    return change
