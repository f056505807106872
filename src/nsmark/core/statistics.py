"""Further comparisons of an owner's and a suspect's output matrix, each with its invariance.

Both matrices are (output_dim, num_texts) over the same texts in the same order; the numbers of
dimensions may differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.core.eigenpairs import smallest_eigenpairs
from nsmark.core.null_space import (
    DEAD_ROW_TOLERANCE,
    Matrix,
    check_matrix,
    live_rows,
    matching_degree,
    null_space_basis,
    row_space_basis,
)
from nsmark.errors import EvidenceError

_PENALTY_EXPONENTS = range(-6, 2)
_NUM_FOLDS = 5


def _same_texts(
    owner: NDArray[np.floating], suspect: NDArray[np.floating]
) -> tuple[Matrix, Matrix]:
    first, second = check_matrix(owner, "owner outputs"), check_matrix(suspect, "suspect outputs")
    if first.shape[1] != second.shape[1]:
        raise EvidenceError(
            f"owner outputs answer {first.shape[1]} texts, suspect outputs {second.shape[1]}",
            "measure exactly the key's verification texts, in their order",
        )
    return first, second


def centred(matrix: Matrix) -> Matrix:
    """Return the matrix with the mean of every row taken off."""
    result = np.asarray(matrix - matrix.mean(axis=1, keepdims=True))
    # Of a constant row the rounded mean leaves a residue: a direction that means nothing, and
    # one that every centred null basis annihilates, as if it were the owner's.
    sizes = np.linalg.norm(matrix, axis=1)
    result[np.linalg.norm(result, axis=1) <= DEAD_ROW_TOLERANCE * sizes] = 0.0
    return result


def unit_columns(matrix: NDArray[np.floating]) -> Matrix:
    """Return the matrix with every column (one text's output) of length 1.

    Raises:
        EvidenceError: Some text was answered by zero.
    """
    values = check_matrix(matrix)
    lengths = np.linalg.norm(values, axis=0)
    if (lengths == 0).any():
        raise EvidenceError(
            f"{np.count_nonzero(lengths == 0)} texts were answered by a zero vector",
            "measure those texts again",
        )
    return np.asarray(values / lengths)


def centred_matching_degree(
    owner_matrix: NDArray[np.floating], suspect_matrix: NDArray[np.floating]
) -> float:
    """Return the matching degree after removing every constant; lower is closer.

    The null basis comes from the owner's matrix with a row of ones added, and the suspect's rows
    are centred. Invariant to suspect → Q·suspect + b·1ᵀ.
    """
    owner, suspect = _same_texts(owner_matrix, suspect_matrix)
    return matching_degree(centred(suspect), centred_null_basis(owner))


def centred_null_basis(owner_matrix: NDArray[np.floating]) -> Matrix:
    """Return the null basis of the owner's matrix with a row of ones added."""
    owner = check_matrix(owner_matrix, "owner outputs")
    # The row of ones gets the size of the others, so that the rank count does not depend on the
    # unit in which the outputs are given.
    size = np.linalg.norm(owner[live_rows(owner)]) / np.sqrt(owner.size)
    return null_space_basis(np.vstack([owner, np.full((1, owner.shape[1]), size)]))


def alignment(
    suspect_matrix: NDArray[np.floating], null_basis: NDArray[np.floating]
) -> tuple[NDArray[np.float64], float]:
    """Find the scale and sign per text that best undoes a per-text scaling of the outputs.

    With B̂ the suspect's matrix with unit columns, the two smallest eigenvalues λ₀ ≤ λ₁ of
    (B̂ᵀB̂) ∘ (NNᵀ) tell whether some diagonal d puts B̂·diag(d) into the owner's row space.

    Returns:
        (scales, gap): the eigenvector of λ₀, shape (num_texts,), its largest entry positive, and
        λ₀/λ₁, near 0 for a theft and near 1 for an unrelated model.
    """
    units = unit_columns(suspect_matrix)
    basis = check_matrix(null_basis, "null basis")
    if len(basis) != units.shape[1]:
        raise EvidenceError(
            f"outputs answer {units.shape[1]} texts, the null basis belongs to {len(basis)}",
            "measure exactly the key's verification texts, in their order",
        )
    return aligned_scales(units, basis @ basis.T)


def aligned_scales(units: Matrix, projector: Matrix) -> tuple[NDArray[np.float64], float]:
    """Return :func:`alignment` of unit columns, given the projector NNᵀ on the null space."""
    coupling = (units.T @ units) * projector
    last = min(1, len(coupling) - 1)
    values, vectors = smallest_eigenpairs(coupling, last + 1)
    scales = vectors[:, 0]
    scales = scales * np.sign(scales[np.argmax(np.abs(scales))])
    smallest, second = max(float(values[0]), 0.0), float(values[last])
    # Two vanishing eigenvalues leave the scales undetermined: that is no evidence of theft. All
    # eigenvalues lie in [0, 1], so rounding moves them by less than this.
    rounding = len(coupling) * float(np.finfo(np.float64).eps)
    return scales, smallest / second if second > rounding else 1.0


def projective_matching_degree(
    output_matrix: NDArray[np.floating], null_basis: NDArray[np.floating]
) -> float:
    """Return the matching degree after undoing one unknown scale, of either sign, per text."""
    scales, _ = alignment(output_matrix, null_basis)
    return matching_degree(unit_columns(output_matrix) * scales, null_basis)


def subspace_overlap(
    owner_matrix: NDArray[np.floating], suspect_matrix: NDArray[np.floating]
) -> float | None:
    """Return how much of the centred row spaces coincides, corrected for chance.

    1 for the same model under ANY invertible map, about 0 for unrelated outputs. A suspect of
    low rank looks guilty: compare it only with controls cut to the same rank.

    Returns:
        None where a rank leaves no room for chance (rank ≥ num_texts − 1).
    """
    owner, suspect = _same_texts(owner_matrix, suspect_matrix)
    return overlap_of(*(row_space_basis(centred(matrix)) for matrix in (owner, suspect)))


def overlap_of(first: Matrix, second: Matrix) -> float | None:
    """Return the overlap of two spaces by their orthonormal bases, shape (num_texts, rank)."""
    ranks = [space.shape[1] for space in (first, second)]
    room = len(first) - 1
    if max(ranks) >= room:
        return None
    raw = float(np.sum((first.T @ second) ** 2)) / min(ranks)
    chance = max(ranks) / room
    return float((raw - chance) / (1 - chance))


def principal_axes(rows: Matrix) -> tuple[NDArray[np.float64], Matrix]:
    """Return squared singular values and right singular vectors, shape (width, rank).

    By the eigenvectors of the smaller Gram matrix where that is exact enough: every penalty is
    at least 1e-6 of the largest square, so what squaring loses (1e-16 of it) does not show.
    """
    if len(rows) >= rows.shape[1]:
        squares, directions = np.linalg.eigh(rows.T @ rows)
        return np.maximum(squares, 0.0), directions
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return values**2, right.T


def _ridge_residuals(
    inputs: Matrix,
    targets: Matrix,
    train: slice | NDArray[np.intp],
    test: slice | NDArray[np.intp],
    penalties: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]:
    """Return the residual sum of squares for each penalty, and the total sum of squares.

    Inputs and targets have one row per text; both are centred by training means.
    """
    input_mean, target_mean = inputs[train].mean(axis=0), targets[train].mean(axis=0)
    centred_inputs = inputs[train] - input_mean
    squares, directions = principal_axes(centred_inputs)
    rotated = directions.T @ (centred_inputs.T @ (targets[train] - target_mean))
    projected = (inputs[test] - input_mean) @ directions
    truth = targets[test] - target_mean
    residuals = [
        float(np.sum((truth - projected @ (rotated / (squares + penalty)[:, None])) ** 2))
        for penalty in penalties
    ]
    return np.array(residuals), float(np.sum(truth**2))


def predictability(
    owner_matrix: NDArray[np.floating], suspect_matrix: NDArray[np.floating]
) -> float:
    """Return R² of predicting the owner's outputs from the suspect's by ridge regression.

    Fitted on the first 70 % of the texts, scored on the rest, all outputs together; the penalty
    is chosen by 5-fold cross-validation inside the 70 %.
    """
    owner, suspect = _same_texts(owner_matrix, suspect_matrix)
    inputs, targets = suspect.T, owner.T
    split = len(inputs) * 7 // 10
    if split < 2 * _NUM_FOLDS or len(inputs) - split < 2:
        raise EvidenceError(f"{len(inputs)} texts are too few for a prediction", "use 15 or more")
    training = inputs[:split] - inputs[:split].mean(axis=0)
    largest = float(principal_axes(training)[0].max())
    if largest == 0:
        return 0.0
    penalties = largest * 10.0 ** np.array(_PENALTY_EXPONENTS)
    order = np.arange(split)
    errors = np.zeros(len(penalties))
    for fold in np.array_split(order, _NUM_FOLDS):
        errors += _ridge_residuals(inputs, targets, np.setdiff1d(order, fold), fold, penalties)[0]
    best = penalties[[int(np.argmin(errors))]]
    residual, total = _ridge_residuals(inputs, targets, slice(0, split), slice(split, None), best)
    if total == 0:
        raise EvidenceError("the owner's outputs are constant", "the key holds no evidence")
    return 1.0 - float(residual[0]) / total
