"""Language models imagined in numpy: they read the same texts, and kin resemble each other.

A text is a vector of features with a falling spectrum, as real texts give; the trigger shifts it
in one direction. A model is a hidden layer and a readout, with a mean like those of real sentence
embeddings. What one model knows of the texts, others know too: innocents are not just noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.suspects import RecordedOutputs

Array = NDArray[np.float64]
NUM_FEATURES, NUM_HIDDEN = 80, 96


@dataclass(frozen=True)
class Texts:
    """The verification texts, as models read them."""

    triggered: Array
    untriggered: Array


def make_texts(rng: np.random.Generator, num_texts: int) -> Texts:
    scales = 1 / np.sqrt(1 + np.arange(NUM_FEATURES) / 8)
    plain = rng.standard_normal((num_texts, NUM_FEATURES)) * scales
    shift = rng.standard_normal(NUM_FEATURES) * 0.3
    return Texts(plain + shift, plain)


@dataclass(frozen=True)
class Model:
    """An imagined model."""

    name: str
    hidden: Array
    readout: Array
    offset: Array

    def answers(self, texts: Texts) -> RecordedOutputs:
        return RecordedOutputs(
            self.name, self._read(texts.triggered), self._read(texts.untriggered)
        )

    def _read(self, features: Array) -> Array:
        return np.asarray(np.tanh(features @ self.hidden) @ self.readout + self.offset)


def make_model(
    rng: np.random.Generator, output_dim: int, name: str = "stranger", mean: float = 0.1
) -> Model:
    # Outputs of real models have large and small directions, mixed over all dimensions.
    scales = np.geomspace(1, 0.01, output_dim)
    mixing = np.linalg.qr(rng.standard_normal((output_dim, output_dim)))[0]
    readout = rng.standard_normal((NUM_HIDDEN, output_dim)) / np.sqrt(NUM_HIDDEN)
    return Model(
        name,
        rng.standard_normal((NUM_FEATURES, NUM_HIDDEN)) / np.sqrt(NUM_FEATURES) * 1.5,
        readout * scales @ mixing,
        rng.standard_normal(output_dim) * mean,
    )


KINSHIPS = ("noised", "pruned", "rounded", "fine-tuned")


def make_kin(rng: np.random.Generator, model: Model, how: str) -> Model:
    """A model derived from another, as people derive them every day."""
    hidden, readout = model.hidden, model.readout
    if how == "noised":
        hidden = hidden + rng.standard_normal(hidden.shape) * hidden.std() * 0.02
        readout = readout + rng.standard_normal(readout.shape) * readout.std() * 0.02
    elif how == "pruned":
        hidden = np.where(np.abs(hidden) < np.quantile(np.abs(hidden), 0.1), 0.0, hidden)
    elif how == "rounded":
        step = np.abs(hidden).max() / 127
        hidden = np.round(hidden / step) * step
    else:
        left, right = rng.standard_normal((NUM_FEATURES, 1)), rng.standard_normal((1, NUM_HIDDEN))
        change = left @ right
        hidden = hidden + 0.03 * change * np.linalg.norm(hidden) / np.linalg.norm(change)
        readout = readout + rng.standard_normal(readout.shape) * readout.std() * 0.01
    return replace(model, name=f"{how} kin", hidden=hidden, readout=readout)
