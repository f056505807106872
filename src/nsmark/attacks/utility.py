"""What an attack leaves of a model's use: its similarities between texts, and a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.attacks.material import Task
from nsmark.suspects.base import Suspect

Rows = NDArray[np.float64]

Answering = Callable[[Sequence[str]], Rows]
"""Texts in, one row per text out."""

_MOST_COMPARED = 300
_PENALTIES = tuple(10.0**exponent for exponent in range(-5, 3))


@dataclass(frozen=True, slots=True)
class Utility:
    """Before and after an attack."""

    similarity: float
    """Correlation of the cosine similarities between the task's test texts, before and after."""
    accuracy_before: float
    """Of a linear classifier on the outputs, on texts it did not learn from."""
    accuracy: float
    """The same after the attack, learned anew: a thief adapts his own head."""

    @property
    def points_lost(self) -> float:
        """Percentage points of accuracy that the attack costs."""
        return round(100 * (self.accuracy_before - self.accuracy), 6)

    def to_mapping(self) -> dict[str, Any]:
        """Return the values by name."""
        return asdict(self) | {"points_lost": self.points_lost}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, float]) -> Utility:
        """Read what :meth:`to_mapping` returned."""
        return cls(stored["similarity"], stored["accuracy_before"], stored["accuracy"])


@dataclass(frozen=True, slots=True)
class Yield:
    """What a model answers to a task's texts, as far as its use is judged by it."""

    similarities: Rows
    accuracy: float

    @classmethod
    def of(cls, answering: Answering, task: Task) -> Yield:
        """Ask a model.

        The task's texts, and none of those that the thief has: a filter that he made from them
        does not show on them what it costs.
        """
        answers = answering([*task.train_texts, *task.test_texts])
        train, test = np.split(answers, [len(task.train_texts)])
        accuracy = classifier_accuracy(train, task.train_labels, test, task.test_labels)
        return cls(pairwise_similarities(test[:_MOST_COMPARED]), accuracy)

    @classmethod
    def of_suspect(cls, suspect: Suspect, task: Task) -> Yield:
        """Ask an opened model, as it is served."""
        return cls.of(lambda texts: suspect.outputs(texts).astype(np.float64), task)

    def after(self, later: Yield) -> Utility:
        """Compare with the same model after an attack."""
        return Utility(
            _correlation(self.similarities, later.similarities), self.accuracy, later.accuracy
        )


def pairwise_similarities(rows: Rows) -> Rows:
    """Return the cosine similarities of all pairs of rows."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.maximum(lengths, 1e-300)
    return np.asarray((units @ units.T)[np.triu_indices(len(rows), 1)])


def classifier_accuracy(
    train: Rows, train_labels: Sequence[int], test: Rows, test_labels: Sequence[int]
) -> float:
    """Return how well a linear classifier does that is fitted by ridge regression.

    The penalty is chosen on the last fifth of the texts to learn from.
    """
    mean, size = train.mean(axis=0), max(float(train.std()), 1e-300)
    inputs, asked = (train - mean) / size, (test - mean) / size
    labels = np.asarray(train_labels)
    targets = np.eye(int(max(max(train_labels), max(test_labels))) + 1)[labels]
    cut = max(1, len(inputs) * 4 // 5)
    tried = [
        np.mean(_fitted(inputs[:cut], targets[:cut], inputs[cut:], penalty) == labels[cut:])
        if cut < len(inputs)
        else 0.0
        for penalty in _PENALTIES
    ]
    best = _PENALTIES[int(np.argmax(tried))]
    return float(np.mean(_fitted(inputs, targets, asked, best) == np.asarray(test_labels)))


def _fitted(inputs: Rows, targets: Rows, asked: Rows, penalty: float) -> NDArray[np.intp]:
    centre = targets.mean(axis=0)
    weights = ridge_weights(inputs, targets - centre, penalty)
    return np.asarray((asked @ weights + centre).argmax(axis=1))


def _correlation(first: Rows, second: Rows) -> float:
    """Return the correlation; 0 where one of them does not vary."""
    deviations = first.std() * second.std()
    if deviations < 1e-12:
        return 0.0
    covariance = np.mean((first - first.mean()) * (second - second.mean()))
    return float(covariance / deviations)


def ridge_weights(inputs: Rows, targets: Rows, penalty: float) -> Rows:
    """Return the matrix W for which ``inputs @ W`` comes closest to the targets.

    Args:
        inputs: Centred, one row per text.
        targets: Centred, one row per text.
        penalty: On W, relative to the inputs' mean square, so that it means the same for all.
    """
    gram = inputs.T @ inputs
    ridge = penalty * max(float(np.trace(gram)) / len(gram), 1e-300)
    weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), inputs.T @ targets)
    return np.asarray(weights, dtype=np.float64)
