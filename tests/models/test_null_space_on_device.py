from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core import invariant_matching_degree, null_space_basis
from nsmark.errors import EmptyNullSpaceError, EvidenceError
from nsmark.models.null_space import null_space_basis_on_device

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]


@pytest.mark.parametrize("device", DEVICES)
@given(
    seed=st.integers(0, 2**32 - 1),
    rank=st.integers(1, 8),
    surplus=st.integers(0, 4),
    null_dim=st.integers(1, 12),
)
@settings(max_examples=30, deadline=None)
def test_the_null_space_is_the_one_of_the_core(device, seed, rank, surplus, null_dim):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((rank + surplus, rank)), rng.standard_normal((rank, 12 + 8))
    matrix = left @ right[:, : rank + null_dim]
    found, expected = null_space_basis_on_device(matrix, device), null_space_basis(matrix)
    assert found.shape == expected.shape == (rank + null_dim, null_dim)
    np.testing.assert_allclose(found.T @ found, np.eye(null_dim), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-7)
    other = rng.standard_normal((3, rank + null_dim))
    # Verdicts use the degree that no rotation of the basis can move.
    degrees = [invariant_matching_degree(other, basis) for basis in (found, expected)]
    assert degrees[0] == pytest.approx(degrees[1], rel=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 5), (9, 4)])
def test_too_few_texts_leave_no_null_space(device, shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    with pytest.raises(EmptyNullSpaceError):
        null_space_basis_on_device(matrix, device)


def test_dead_rows_are_left_out_as_in_the_core():
    matrix = np.random.default_rng(0).standard_normal((4, 9))
    matrix[2] = 0
    basis = null_space_basis_on_device(matrix, "cpu")
    assert basis.shape == (9, 6)
    assert np.abs(matrix @ basis).max() < 1e-12


def test_outputs_that_are_no_numbers_are_refused():
    with pytest.raises(EvidenceError):
        null_space_basis_on_device(np.full((2, 5), np.nan), "cpu")


def test_the_global_state_of_torch_is_left_alone():
    state = torch.random.get_rng_state()
    null_space_basis_on_device(np.eye(3, 7), "cpu")
    assert torch.equal(state, torch.random.get_rng_state())
