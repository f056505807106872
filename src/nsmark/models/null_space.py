"""The null basis on an accelerator: the same complete QR with a counted rank, in float64."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nsmark.core.null_space import RANK_TOLERANCE, check_matrix, live_rows
from nsmark.errors import EmptyNullSpaceError


def null_space_basis_on_device(
    output_matrix: NDArray[np.floating], device: str
) -> NDArray[np.float64]:
    """Do what :func:`nsmark.core.null_space_basis` does, on a torch device.

    Worth it from a few thousand texts on; the subspace is the same, its basis may be rotated.
    """
    values = check_matrix(output_matrix)
    values = values[live_rows(values)]
    basis = null_space_of(torch.from_numpy(np.ascontiguousarray(values)).to(device))
    result: NDArray[np.float64] = basis.cpu().numpy()
    return result


def null_space_of(matrix: Tensor) -> Tensor:
    """Return an orthonormal null basis of a float64 matrix, shape (num_texts, null_dim)."""
    output_dim, num_texts = matrix.shape
    size = min(output_dim, num_texts)
    orthogonal, triangle = torch.linalg.qr(matrix.T, mode="complete")
    triangle = triangle[:size]
    if _is_clearly_full_rank(triangle):
        if size == num_texts:
            raise EmptyNullSpaceError(num_texts=num_texts, output_dim=output_dim)
        basis: Tensor = orthogonal[:, size:]
        return basis
    left, values, _ = torch.linalg.svd(triangle, full_matrices=False)
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    if rank == num_texts:
        raise EmptyNullSpaceError(num_texts=num_texts, output_dim=output_dim)
    return torch.cat([orthogonal[:, :size] @ left[:, rank:], orthogonal[:, size:]], dim=1)


def _is_clearly_full_rank(triangle: Tensor) -> bool:
    """See ``nsmark.core.null_space``: σ_max ≤ ‖R‖_F, σ_min ≥ 1 / ‖R₁⁻¹‖_F."""
    square = triangle[:, : len(triangle)]
    identity = torch.eye(len(square), dtype=square.dtype, device=square.device)
    inverse = torch.linalg.solve_triangular(square, identity, upper=True)
    bound = torch.linalg.norm(triangle) * torch.linalg.norm(inverse)
    return bool(bound < 1 / RANK_TOLERANCE)  # NaN and infinity compare as False: unknown
