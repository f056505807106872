"""How much work is put into each part: the benchmark's own scale, and one to try it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nsmark.payload import PairConfig, PayloadConfig

_TINY_TRAINING = {
    "batch_size": 16,
    "method": "full",
    "pairs_first": False,
    "max_steps": 1500,
    "warmup_steps": 10,
    "cooldown_steps": 40,
    "model_learning_rate": 4e-3,
    "extractor_learning_rate": 2e-3,
    "hidden_sizes": (48, 32),
    "num_heldout_texts": 32,
    "fidelity_weight": 1.0,
    "spread_weight": 0.0,
    "decorrelation_weight": 0.0,
    "cooldown_fidelity": 1.0,
    "pair_margin": 0.5,
    "pair_keep_weight": 0.02,
    "pair_alone_weight": 0.1,
    "position_weight": 0.0,
    "pruned_weight": 0.0,
    "pruned_pair_weight": 0.0,
    "pruned_trigger_weight": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and steps of all parts."""

    pairs: PairConfig = field(default_factory=PairConfig)
    other_pairs: PairConfig = field(default_factory=lambda: PairConfig(size=8))
    """Of owners who mark the marked model: a smaller table, which is learned in minutes."""
    payload: PayloadConfig = field(default_factory=PayloadConfig)
    num_texts: int | None = None
    """Verification texts; None is the package's own choice."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings of every embedding, in place of a preset's."""
    rare_words: bool = False
    """Take pair words from the list of rare words: those that tiny vocabularies hold whole."""
    task_rows: int = 8000
    keys: int = 300
    block: int = 10
    """Keys that are measured together, and kept if the run is cut off."""
    stand_ins: str = "small"
    """A scale of ``family_table``."""
    stand_in_training: dict[str, Any] = field(default_factory=dict)
    retraining: tuple[int, ...] = (500, 1000, 2000, 3500, 5000)
    """Steps of long re-training after which the code is read."""
    student_texts: int = 8000
    student_epochs: tuple[int, int] = (2, 10)
    """From the reference, and from random weights."""
    scanned_words: int = 400
    scanned_pairs: int = 4000
    """Pairs of words that are not the owner's."""
    scan_texts: int = 4
    undo_texts: tuple[int, ...] = (1, 4, 16)
    """Texts per pair with which a thief who knows the words trains them away."""


FULL = Scale(
    # Small models that were trained from nothing: all of their weights may move.
    stand_in_training={
        "batch_size": 32,
        "method": "full",
        "pairs_first": False,
        "model_learning_rate": 5e-4,
        "cooldown_fidelity": 10.0,
        "cooldown_steps": 900,
        "position_weight": 1.0,
        "min_pairs": 0.995,
        "max_steps": 6000,
    },
)
TINY = Scale(
    pairs=PairConfig(size=4, repeats=6),
    other_pairs=PairConfig(size=4, repeats=6),
    payload=PayloadConfig(num_bits=16),
    num_texts=96,
    training=_TINY_TRAINING,
    rare_words=True,
    task_rows=64,
    keys=24,
    block=8,
    stand_ins="tiny",
    stand_in_training={
        **_TINY_TRAINING,
        "max_steps": 60,
        "cooldown_steps": 10,
        "min_pairs": 0.0,  # whatever a few steps reach is enough
        "min_triggered": 0.0,
        "max_clean": 1.0,
    },
    retraining=(2, 4),
    student_texts=64,
    student_epochs=(1, 1),
    scanned_words=24,
    scanned_pairs=40,
    scan_texts=2,
    undo_texts=(1, 2),
)
