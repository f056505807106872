"""What children may do wrong; named here, because children import what they are to do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nsmark.errors import ModelError


def sum_up(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    tell("adding", 1, 2)
    return {
        "sum": sum(request["numbers"]),
        "bytes": [len(file) for file in files],
        "pid": os.getpid(),
        "modules": sorted(sys.modules),
        "environment": sorted(os.environ),
    }


def burn_memory(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))


def burn_time(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    while True:
        tell("burning", 0, 1)
        time.sleep(0.01)


def burn_quietly(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    while True:
        time.sleep(0.01)


def crash(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    os.abort()


def crash_once(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    try:
        with open(request["path"], "x"):
            os.abort()
    except FileExistsError:
        return {"attempts": 2}


def fail(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    raise RuntimeError("the secret trigger word")


def have_trouble(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    raise ModelError("a control cannot be opened", "look at it")


def talk_nonsense(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    tell("x\x1b[2J", "many", None)
    return {}


def stop_halfway(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    """Announce a long message on every open connection, and never send it."""
    for handle in range(3, 64):
        try:
            os.write(handle, b"\x00\x00\x10\x00r")
        except OSError:
            continue
    time.sleep(3600)
    return {}


def answer_strangely(
    request: Mapping[str, Any], files: Sequence[bytes], tell: Any
) -> dict[str, Any]:
    return {"state": "admitted", "reasons": [], "more": 1}


def tell_manners(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    """How willingly this process lets others go first."""
    return {
        "niceness": os.nice(0),
        "policy": os.sched_getscheduler(0),
        "session": os.getsid(0),
    }
