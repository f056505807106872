"""The smallest eigenvalues: as scipy finds them, and without stopping other threads."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh

from nsmark.core import eigenpairs
from nsmark.core.eigenpairs import smallest_eigenpairs


def symmetric(size: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((size, size))
    return values + values.T


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.data())
def test_pairs_are_those_of_scipy(size: int, seed: int, data: st.DataObject) -> None:
    matrix = symmetric(size, seed)
    count = data.draw(st.integers(1, size))
    before = matrix.copy()

    values, vectors = smallest_eigenpairs(matrix, count)

    expected = eigh(matrix, subset_by_index=(0, count - 1))[0]
    np.testing.assert_allclose(values, expected, atol=1e-12 * max(1.0, np.abs(matrix).max()))
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    np.testing.assert_array_equal(matrix, before)


def test_any_layout_of_the_matrix_will_do() -> None:
    matrix = symmetric(30, 0)
    expected = smallest_eigenpairs(matrix, 2)[0]

    for same in (np.asfortranarray(matrix), np.kron(matrix, np.ones((2, 2)))[::2, ::2]):
        np.testing.assert_allclose(smallest_eigenpairs(same, 2)[0], expected, atol=1e-12)


def test_a_large_matrix_gives_the_same_as_scipy_to_the_last_digits() -> None:
    matrix = symmetric(400, 1)

    values, vectors = smallest_eigenpairs(matrix, 2)

    expected, directions = eigh(matrix, subset_by_index=(0, 1))
    np.testing.assert_allclose(values, expected, rtol=1e-13)
    np.testing.assert_allclose(np.abs(np.sum(vectors * directions, axis=0)), 1.0, rtol=1e-12)


def test_without_the_routine_scipy_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = symmetric(20, 2)
    expected = smallest_eigenpairs(matrix, 2)[0]
    monkeypatch.setattr(eigenpairs, "_dsyevr", lambda: None)

    np.testing.assert_allclose(smallest_eigenpairs(matrix, 2)[0], expected, atol=1e-12)


def test_here_the_routine_is_found() -> None:
    assert eigenpairs._dsyevr() is not None


@pytest.mark.parametrize(
    "declaration",
    ["", "void ()", "void (char *, long *)", "void (char *, char *, char *, long *, double *)"],
)
def test_a_routine_declared_in_another_way_is_not_called(declaration: str) -> None:
    assert not eigenpairs._is_as_expected(declaration)


@pytest.mark.parametrize("count", [0, 5])
def test_an_impossible_number_of_pairs_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="not valid"):
        smallest_eigenpairs(symmetric(4, 3), count)


def test_other_threads_go_on_meanwhile() -> None:
    matrix = symmetric(1200, 4)
    worker = threading.Thread(target=smallest_eigenpairs, args=(matrix, 2))
    smallest_eigenpairs(symmetric(4, 5), 1)  # whatever is loaded once
    steps = 0
    worker.start()
    while worker.is_alive():
        worker.join(1e-4)
        steps += 1

    # With Python's lock held, this thread would come to itself a time or two.
    assert steps > 20
