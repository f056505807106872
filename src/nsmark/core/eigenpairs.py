"""The smallest eigenvalues of symmetric matrices, several matrices at a time.

``scipy.linalg.eigh`` keeps Python's lock while LAPACK works, so threads that compare suspects side
by side would wait for each other. This calls the same routine of the same library without it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, eigh

# Of jobz, range, uplo, n, a, lda, vl, vu, il, iu, abstol, m, w, z, ldz, isuppz, work, lwork,
# iwork, liwork, info; all are pointers.
_PARAMETERS = "char char char int d int d d int int d int d d int int d int int int int"


def smallest_eigenpairs(
    matrix: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest eigenvalues, ascending, and their vectors as columns.

    Args:
        matrix: Symmetric and finite, shape (size, size).
        count: How many, from 1 to size.
    """
    size = len(matrix)
    routine = _dsyevr()
    if routine is None or not 1 <= count <= size or matrix.shape != (size, size):
        # Where something is wrong, scipy says what.
        values, vectors = eigh(matrix, subset_by_index=(0, count - 1), check_finite=False)
        return values, vectors
    entries = np.array(matrix, dtype=np.float64, order="F")  # LAPACK writes into it
    values, vectors = np.empty(size), np.empty((size, count), order="F")
    support = np.empty(2 * size, np.intc)
    found, info = ctypes.c_int(), ctypes.c_int()

    def call(work: NDArray[np.float64], integers: NDArray[np.intc], *lengths: int) -> None:
        order, first, last, *given = (ctypes.c_int(n) for n in (size, 1, count, *lengths))
        unused = ctypes.c_double(0.0)
        routine(
            *(ctypes.byref(ctypes.c_char(letter)) for letter in (b"V", b"I", b"L")),
            ctypes.byref(order),
            entries.ctypes,
            ctypes.byref(order),
            *[ctypes.byref(unused)] * 2,
            *(ctypes.byref(bound) for bound in (first, last)),
            ctypes.byref(unused),
            ctypes.byref(found),
            values.ctypes,
            vectors.ctypes,
            ctypes.byref(order),
            support.ctypes,
            work.ctypes,
            ctypes.byref(given[0]),
            integers.ctypes,
            ctypes.byref(given[1]),
            ctypes.byref(info),
        )

    work, integers = np.empty(1), np.empty(1, np.intc)
    call(work, integers, -1, -1)  # asks how much room it wants
    work, integers = np.empty(int(work[0])), np.empty(int(integers[0]), np.intc)
    call(work, integers, len(work), len(integers))
    if info.value != 0 or found.value != count:
        raise np.linalg.LinAlgError("the eigenvalues of a symmetric matrix were not found")
    return values[:count], vectors


@cache
def _dsyevr() -> Callable[..., None] | None:
    """Return LAPACK's routine as scipy has it, None where that is declared in another way."""
    capsule = getattr(cython_lapack, "__pyx_capi__", {}).get("dsyevr")
    if capsule is None:
        return None
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of = ctypes.pythonapi.PyCapsule_GetPointer
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    declaration: bytes = name_of(capsule)
    if not _is_as_expected(declaration.decode()):
        return None
    # A CFUNCTYPE lets other threads go on while it runs.
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(_PARAMETERS.split()))
    routine: Callable[..., None] = prototype(address_of(capsule, declaration))
    return routine


def _is_as_expected(declaration: str) -> bool:
    """Return whether a routine takes pointers to characters, 32-bit integers and doubles."""
    kinds = declaration.removeprefix("void (").removesuffix(")").replace(" *", "").split(", ")
    short = " ".join("d" if kind.endswith("cython_lapack_d") else kind for kind in kinds)
    return short == _PARAMETERS and ctypes.sizeof(ctypes.c_int) == np.dtype(np.intc).itemsize == 4
