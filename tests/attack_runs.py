"""Running attacks in tests, and looking at what they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nsmark.attacks.expression import parse_attack
from nsmark.attacks.material import Material, gather_material
from nsmark.attacks.running import run_attack
from nsmark.corpus import training_texts
from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks
from nsmark.models.loading import open_encoder
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]
_gathered = cache(gather_material)


class Attacked(NamedTuple):
    """An attacked folder, and what the last attack said of itself; the whole is under ``all``."""

    folder: Path
    facts: dict[str, Any]


def small_material(**changes: Any) -> Material:
    """Return a few texts and a small task, on the CPU."""
    found = _gathered(device="cpu", max_task_texts=240)
    values = {"texts": found.texts[:400], "task": found.task, "device": "cpu"} | changes
    return Material(**values)


def attack(
    model: Path,
    out: Path,
    expression: str,
    settings: Mapping[str, str] | None = None,
    *,
    material: Material | None = None,
    pooling: str | None = None,
) -> dict[str, Any]:
    """Attack a folder and return what was done in the last step, with the whole under ``all``."""
    steps = parse_attack(expression, settings)
    done = run_attack(model, steps, out, material or small_material(), pooling=pooling)
    return done["steps"][-1] | {"all": done}


def answers(folder: Path, texts: Sequence[str] = TEXTS, **how: Any) -> np.ndarray:
    """Return what a folder answers as it is served, asked for the first time."""
    return open_suspect(folder, device="cpu", **how).outputs(texts).astype(np.float64)


def opened(folder: Path) -> Encoder:
    """Open a folder on the CPU."""
    return open_encoder(folder, device="cpu")


def matrices(encoder: Encoder) -> dict[str, torch.Tensor]:
    """Return the weight matrices of a transformer's layers by layer and name."""
    return {
        f"{number}.{name}": weight.detach()
        for number, layer in enumerate(blocks(encoder.network))
        for name, weight in layer.named_parameters()
        if weight.dim() == 2
    }


def others(encoder: Encoder) -> list[torch.Tensor]:
    """Return all weights but those matrices: embeddings, biases, norms."""
    taken = {weight.data_ptr() for weight in matrices(encoder).values()}
    return [w.detach() for w in encoder.network.parameters() if w.data_ptr() not in taken]


def are_other_weights_the_same(before: Encoder, after: Encoder) -> bool:
    """Return whether nothing but those matrices differs."""
    return all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))
