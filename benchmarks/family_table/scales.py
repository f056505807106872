"""How much work is put into a row: the table's own scale, and one for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nsmark.payload import PairConfig, PayloadConfig


@dataclass(frozen=True, slots=True)
class Scale:
    """How large stand-ins are, how long they are pretrained, and what is asked of them."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    pretraining_steps: int
    pretraining_batch: int
    payload: PayloadConfig
    pairs: PairConfig = field(default_factory=PairConfig)
    """Of rows with a pair code."""
    num_texts: int | None = None
    """Verification texts; None is the package's own choice for the model's width."""
    shape: dict[str, Any] = field(default_factory=dict)
    """Model settings of every family, beside its own."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Training settings that take the place of every row's own."""


SCALES = {
    "small": Scale(4, 256, 4, 1024, 8000, 600, 64, PayloadConfig()),
    # For tests of this script: seconds on a CPU, and numbers that say nothing.
    "tiny": Scale(
        layers=2,
        width=32,
        heads=4,
        feed_forward=64,
        vocabulary=1000,
        pretraining_steps=20,
        pretraining_batch=16,
        payload=PayloadConfig(num_bits=16),
        pairs=PairConfig(size=4, repeats=2),
        num_texts=96,
        shape={"initializer_range": 0.2},
        settings={
            "batch_size": 16,
            "model_learning_rate": 2e-3,
            "extractor_learning_rate": 2e-3,
            "cooldown_steps": 20,
            "pair_cooldown_steps": 20,
            "min_triggered": 0.0,  # whatever a few steps reach is enough
            "min_pairs": 0.0,
            "max_clean": 1.0,
            "hidden_sizes": (48, 32),
            "num_heldout_texts": 32,
        },
    ),
}
