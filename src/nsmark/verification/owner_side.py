"""What comparisons need of the owner's outputs, computed once for many suspects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsmark.core.null_space import null_space_basis, row_space_basis
from nsmark.core.statistics import centred, centred_null_basis, unit_columns
from nsmark.errors import EvidenceError, KeyFileError

Matrix = NDArray[np.float64]
BasisFunction = Callable[[NDArray[np.floating]], Matrix]
"""Computes a null basis: :func:`null_space_basis`, or the same on an accelerator."""


@dataclass(frozen=True, slots=True)
class OwnerSide:
    """The owner's outputs on one set of texts; matrices are (output_dim, num_texts)."""

    matrix: Matrix
    basis: Matrix
    """Of the null space: always from the outputs, never a stored one, which may be rotated."""
    centred_basis: Matrix | None
    """None where too few texts are left for it."""
    space: Matrix
    """Orthonormal basis of the centred row space."""
    units: Matrix | None
    """The outputs at unit length; None where some are zero."""
    projector: Matrix
    """On the null space."""
    unit_projector: Matrix | None
    """The same for ``units``; the same object where the outputs have unit length already."""
    unit_space: Matrix | None

    @property
    def num_texts(self) -> int:
        """Texts that were answered."""
        return int(self.matrix.shape[1])

    @property
    def rank(self) -> int:
        """Dimensions that the outputs vary in."""
        return int(self.space.shape[1])


def owner_side(
    outputs: NDArray[np.floating], basis_of: BasisFunction = null_space_basis
) -> OwnerSide:
    """Prepare outputs of shape (num_texts, output_dim)."""
    matrix = np.asarray(outputs.T, dtype=np.float64)
    if not np.ptp(matrix, axis=1).any():
        raise KeyFileError(
            "the owner's outputs are the same for every text",
            "the key holds no evidence: refuse it",
        )
    basis = basis_of(matrix)
    projector = basis @ basis.T
    space = row_space_basis(centred(matrix))
    try:
        centred_basis = centred_null_basis(matrix)
    except EvidenceError:
        centred_basis = None
    if not matrix.any(axis=0).all():
        return OwnerSide(matrix, basis, centred_basis, space, None, projector, None, None)
    units = unit_columns(matrix)
    if np.allclose(matrix, units, rtol=0, atol=1e-6):
        return OwnerSide(matrix, basis, centred_basis, space, units, projector, projector, space)
    unit_basis = basis_of(units)
    return OwnerSide(
        matrix,
        basis,
        centred_basis,
        space,
        units,
        projector,
        unit_basis @ unit_basis.T,
        row_space_basis(centred(units)),
    )
