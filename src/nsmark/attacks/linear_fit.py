"""Fitting linear maps between outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


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
