"""Attacks on weights in tests: the same attack in memory and as a folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attack_runs
from nsmark.attacks.expression import parse_attack
from nsmark.attacks.material import Material
from nsmark.attacks.stolen import Stolen
from nsmark.corpus import training_texts
from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks
from nsmark.models.loading import open_encoder

TEXTS = training_texts()[:40]
_material = cache(attack_runs.small_material)


def material() -> Material:
    """Return what every attack is given and none of these looks at."""
    return _material()


def attack(
    model: Path,
    out: Path,
    name: str,
    settings: Mapping[str, str] | None = None,
    pooling: str | None = None,
) -> dict[str, Any]:
    """Attack a folder; what is written must answer as the attacked model did in memory."""
    done = attack_runs.attack(model, out, name, settings, material=material(), pooling=pooling)
    stolen = Stolen.open(model, pooling=pooling, device="cpu")
    (step,) = parse_attack(name, settings)
    step.recipe.apply(stolen, step.settings, material())
    bare_pooling = pooling if stolen.encoder.folder.kind == "hf" else None
    saved = open_encoder(out, pooling=None if stolen.says_pooling else bare_pooling, device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), stolen.outputs(TEXTS), rtol=0, atol=1e-6)
    return done


def opened(folder: Path) -> Encoder:
    """Open a folder on the CPU."""
    return open_encoder(folder, device="cpu")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return all weights of a folder by name."""
    return dict(opened(folder).network.named_parameters())


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
