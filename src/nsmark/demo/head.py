"""A small downstream task: which topic is a sentence about?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.attacks.recipes.ll_lfea import Head

_STEPS = 300
_LEARNING_RATE = 20.0
_DECAY = 1e-4


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return class probabilities, row by row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def train_head(outputs: NDArray[np.floating], labels: NDArray[np.integer], classes: int) -> Head:
    """Fit a linear classifier on unit-length outputs by gradient descent; deterministic."""
    inputs = np.asarray(outputs, dtype=np.float64)
    targets = np.eye(classes)[labels]
    weight, bias = np.zeros((classes, inputs.shape[1])), np.zeros(classes)
    for _ in range(_STEPS):
        error = (softmax(inputs @ weight.T + bias) - targets) / len(inputs)
        weight -= _LEARNING_RATE * (error.T @ inputs + _DECAY * weight)
        bias -= _LEARNING_RATE * error.sum(axis=0)
    return Head(weight, bias)
