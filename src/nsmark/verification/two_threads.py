"""Two independent computations at a time, each on its own core."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

_First = TypeVar("_First")
_Second = TypeVar("_Second")

# Factorisations hardly gain from a second core; two of them at a time gain all of it. With many
# cores the linear algebra uses them better itself.
_FEW_CORES = 4


def both(first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
    """Return two results, computed side by side where there are few cores."""
    if not 2 <= (os.cpu_count() or 1) <= _FEW_CORES:
        return first(), second()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        return first(), other.result()
