"""What one row is made with: its material, its device and its training settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from family_table.rows import Row
from family_table.scales import Scale
from family_table.texts import Material
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder


@dataclass(frozen=True, slots=True)
class Run:
    """What one row is made with."""

    row: Row
    scale: Scale
    material: Material
    minilm: Path | None
    device: torch.device
    folder: Path
    """Empty, and gone with the row."""

    def open(self, folder: Path, purpose: str = "train") -> Encoder:
        """Open a model folder on the row's device."""
        return open_encoder(folder, purpose=purpose, device=str(self.device), max_length=128)

    def config(self, outputs: np.ndarray, seed: int) -> EmbeddingConfig:
        """Return the row's training settings, for a model with these clean outputs."""
        settings = self.row.settings | self.scale.settings | {"seed": seed}
        if self.row.kind != "real":
            settings["anchor_weight"] = anchor_weight(outputs)
        if self.row.adapters:
            settings |= {"method": "lora", "lora_rank": 16}
        return replace(preset_config(self.row.preset), **settings)


def anchor_weight(outputs: np.ndarray) -> float:
    """Return a weight that makes the distance to the reference one in units of the outputs' size.

    Its own unit is their variance. Read at a first token that little pretraining has used, outputs
    are almost the same for every text: the smallest step then costs more than the mark can win,
    and the training never begins.
    """
    return float(min(1.0, 4 * outputs.var(axis=0).mean() / np.square(outputs).mean()))
