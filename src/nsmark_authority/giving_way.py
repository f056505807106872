"""Work in the background that leaves the processor to those who answer."""

from __future__ import annotations

import contextlib
import os

NICENESS = 19
"""Only what nobody else wants."""


def give_way(niceness: int = NICENESS) -> None:
    """Let others go first; ``niceness`` 0 changes nothing.

    Where nothing but idle work runs, Linux takes a processor for free and wakes on it at once those
    who answer. It does so within one session only: between sessions it first shares the processor
    out evenly, however nice the one is. So whoever works for a server stays in its session.
    """
    if niceness <= 0:
        return
    os.nice(niceness)
    if niceness >= NICENESS and hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
