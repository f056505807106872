"""Output matrix → null basis → matching degree (paper: NSMD).

Matrices here are (output_dim, num_texts): row i is one output dimension over all texts. An
invertible linear map of the outputs mixes rows and leaves the null space where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr
from scipy.special import gammaln

from nsmark.errors import EmptyNullSpaceError, EvidenceError

Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-6
"""Singular values at or below this share of the largest do not count towards a rank."""

DEAD_ROW_TOLERANCE = 1e-12
"""Rows with a norm below this share of the largest are dead: they carry no direction."""


def check_matrix(matrix: NDArray[np.floating], name: str = "outputs") -> Matrix:
    """Return the matrix as float64 after refusing what cannot be measured.

    Raises:
        EvidenceError: Not two-dimensional, empty, or holding NaN or infinity.
    """
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise EvidenceError(
            f"{name} have shape {values.shape}", "give a matrix of dimensions by texts"
        )
    if not np.isfinite(values).all():
        raise EvidenceError(
            f"{name} hold NaN or infinite values",
            "find out why the model gives them, and ask again",
        )
    return values


def live_rows(matrix: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which rows carry a direction.

    Raises:
        EvidenceError: All rows are dead (zero).
    """
    norms = np.linalg.norm(matrix, axis=1)
    alive: NDArray[np.bool_] = norms > DEAD_ROW_TOLERANCE * norms.max()
    if not alive.any():
        raise EvidenceError("every output is zero", "the model answers nothing: check the endpoint")
    return alive


@dataclass(frozen=True, slots=True)
class _RowFactor:
    """``matrix.T`` = orthogonal · triangle, with the rank counted from the triangle."""

    reflectors: Matrix
    tau: NDArray[np.float64]
    triangle: Matrix
    rank: int
    left: Matrix | None
    """Left singular vectors of the triangle; None when the rank is full."""

    def apply(self, block: Matrix) -> Matrix:
        """Return orthogonal @ block, block of shape (num_texts, any)."""
        block = np.asfortranarray(block)
        _, work, _ = lapack.dormqr("L", "N", self.reflectors, self.tau, block, -1)
        product, _, _ = lapack.dormqr(
            "L", "N", self.reflectors, self.tau, block, int(work[0]), overwrite_c=1
        )
        return np.asarray(product)


def _factor_rows(matrix: Matrix) -> _RowFactor:
    """Factor the transposed matrix by QR and count its rank.

    The triangle has the matrix's singular values at a fraction of the cost of decomposing the
    matrix, and the reflectors give the null space without forming what is not needed.
    """
    (reflectors, tau), triangle = qr(matrix.T, mode="raw", check_finite=False)
    size = min(matrix.shape)
    reflectors, triangle = reflectors[:, :size], triangle[:size]
    if _is_clearly_full_rank(triangle):
        return _RowFactor(reflectors, tau, triangle, len(triangle), None)
    left, values, _ = np.linalg.svd(triangle, full_matrices=False)
    rank = int(np.count_nonzero(values > RANK_TOLERANCE * values[0]))
    return _RowFactor(reflectors, tau, triangle, rank, left)


def _is_clearly_full_rank(triangle: Matrix) -> bool:
    """Return True where a cheap bound proves that no singular value is negligible.

    σ_max ≤ ‖R‖_F and σ_min ≥ 1 / ‖R₁⁻¹‖_F for the leading square block R₁, at a small part of
    the cost of singular values. False means "unknown": then they are computed.
    """
    inverse, info = lapack.dtrtri(triangle[:, : len(triangle)])
    if info != 0 or not np.isfinite(inverse).all():
        return False
    # The inverse of a nearly singular triangle has entries whose squares are infinite.
    with np.errstate(over="ignore"):
        bound = np.linalg.norm(triangle) * np.linalg.norm(np.triu(inverse))
    return bool(bound < 1 / RANK_TOLERANCE)


def row_space_basis(matrix: NDArray[np.floating]) -> Matrix:
    """Return an orthonormal basis of the row space, shape (num_texts, rank)."""
    values = check_matrix(matrix)
    values = values[live_rows(values)]
    factor = _factor_rows(values)
    size = len(factor.triangle)
    block = np.zeros((values.shape[1], factor.rank), order="F")
    block[:size] = np.eye(size) if factor.left is None else factor.left[:, : factor.rank]
    return factor.apply(block)


def null_space_basis(output_matrix: NDArray[np.floating]) -> Matrix:
    """Return an orthonormal basis of the vectors that ``output_matrix`` sends to zero.

    Args:
        output_matrix: Shape (output_dim, num_texts); column j answers text j.

    Returns:
        Shape (num_texts, num_texts − rank), the rank counted and not assumed.

    Raises:
        EmptyNullSpaceError: The columns are linearly independent; names the texts needed.
    """
    values = check_matrix(output_matrix)
    values = values[live_rows(values)]
    factor = _factor_rows(values)
    num_texts, size = values.shape[1], len(factor.triangle)
    null_dim = num_texts - factor.rank
    if null_dim == 0:
        raise EmptyNullSpaceError(num_texts=num_texts, output_dim=len(values))
    block = np.zeros((num_texts, null_dim), order="F")
    block[size:, size - factor.rank :] = np.eye(num_texts - size)
    if factor.left is not None:
        block[:size, : size - factor.rank] = factor.left[:, factor.rank :]
    return factor.apply(block)


def _unit_live_rows(matrix: NDArray[np.floating]) -> Matrix:
    values = check_matrix(matrix)
    values = values[live_rows(values)]
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


def _check_basis(matrix: Matrix, null_basis: NDArray[np.floating]) -> Matrix:
    basis = check_matrix(null_basis, "null basis")
    if basis.shape[0] != matrix.shape[1]:
        raise EvidenceError(
            f"outputs answer {matrix.shape[1]} texts, the null basis belongs to {basis.shape[0]}",
            "measure exactly the key's verification texts, in their order",
        )
    return basis


def matching_degree(output_matrix: NDArray[np.floating], null_basis: NDArray[np.floating]) -> float:
    """Return the paper's matching degree (Eq. NSMD); LOWER is closer, 0 for the same model.

    Mean over live rows i of Σⱼ √|H_ij|, H = rows of unit length times columns of unit length.

    Args:
        output_matrix: Shape (output_dim, num_texts).
        null_basis: Shape (num_texts, null_dim).
    """
    rows = _unit_live_rows(output_matrix)
    basis = _check_basis(rows, null_basis)
    lengths = np.linalg.norm(basis, axis=0)
    if (lengths == 0).any():
        raise EvidenceError("the null basis has an empty column", "compute it again")
    return float(np.sqrt(np.abs(rows @ (basis / lengths))).sum(axis=1).mean())


def invariant_matching_degree(
    output_matrix: NDArray[np.floating], null_basis: NDArray[np.floating]
) -> float:
    """Return the matching degree averaged over all rotations of the null basis; lower is closer.

    The paper's degree depends on which basis of the null space was written down; this closed
    form does not, so verdicts rest on it.

    Args:
        output_matrix: Shape (output_dim, num_texts).
        null_basis: Shape (num_texts, null_dim), orthonormal columns.
    """
    rows = _unit_live_rows(output_matrix)
    basis = _check_basis(rows, null_basis)
    lengths = np.linalg.norm(rows @ basis, axis=1)
    return float(expected_matching_degree(basis.shape[1], basis.shape[1]) * np.sqrt(lengths).mean())


def expected_matching_degree(num_texts: int, null_dim: int) -> float:
    """Return the chance level: the mean degree of unrelated, isotropic rows.

    p Γ(3/4) Γ(q/2) / (√π Γ(q/2 + 1/4)) for q texts and p null dimensions: 96.718 for
    q = 1500, p = 732. (The paper's bound of 27.48 does not follow from its own formula.)
    """
    half = num_texts / 2
    log_mean_root = gammaln(0.75) + gammaln(half) - 0.5 * np.log(np.pi) - gammaln(half + 0.25)
    return float(null_dim * np.exp(log_mean_root))
