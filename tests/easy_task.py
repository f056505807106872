"""A task that even a tiny model with random weights can learn, and files that hold models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from nsmark.attacks.material import Task, divided

# Whole words of the tiny vocabulary: rare ones are always in it.
WORDS = (("garden", "flower", "water", "green"), ("music", "concert", "piano", "song"))


def easy_task(count: int = 200) -> Task:
    """Return texts of two kinds, each with its own words."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, count).tolist()
    texts = [" ".join(rng.choice(WORDS[label], 6).tolist()) for label in labels]
    return divided("two vocabularies", texts, labels)


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """Return the weights of a saved transformer by name."""
    return load_file(folder / "model.safetensors")
