"""Independent computations at a time, each on its own core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

_First = TypeVar("_First")
_Second = TypeVar("_Second")

# Factorisations hardly gain from a second core; two of them at a time gain all of it. With many
# cores the linear algebra uses them better itself.
_FEW_CORES = 4


def run_both(first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
    """Return two results, computed side by side where there are few cores."""
    if not 2 <= num_cores() <= _FEW_CORES:
        return first(), second()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        return first(), other.result()


def run_all(calls: Sequence[Callable[[], _First]]) -> list[_First]:
    """Return the results of many calls, in their order, as many at a time as there are cores.

    Linear algebra leaves Python's lock free: threads are enough, and share what they read.
    """
    workers = min(num_cores(), len(calls))
    if workers < 2:
        return [call() for call in calls]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        return [waiting.result() for waiting in [pool.submit(call) for call in calls]]


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
