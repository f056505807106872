"""Processes that tests start: waited for until something is so, and ended with all they started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 600.0
"""Seconds after which a test gives up. It keeps tests from hanging and measures nothing, so it is a
hundred times what a quiet machine needs."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return what the condition returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a program; it ends with the block if not before, and so does all that it started."""
    process = subprocess.Popen(command, **options)
    # Whoever reads what a hanging program says would wait for ever.
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        end(process)


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Do as ``subprocess.run`` does with captured text, and leave nothing running."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running(command, **pipes | options) as process:
        said, complained = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process with its descendants and close what it was read by."""
    family = descendants_of(process.pid) if process.poll() is None else []
    process.kill()
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def descendants_of(pid: int) -> list[int]:
    """Return the ids of all that a process started and that is not gone."""
    parents = {child: parent_of(child) for child in process_ids()}
    found = [child for child, parent in parents.items() if parent == pid]
    for each in found:  # it grows meanwhile
        found += [child for child, parent in parents.items() if parent == each]
    return found


def process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int:
    """Return the parent's id; 0 if there is no such process."""
    return int((_status(pid) or "Z 0").split()[1])


def is_running(pid: int) -> bool:
    """Return whether a process is there and not only waits to be taken note of."""
    return (_status(pid) or "Z")[0] != "Z"


def _status(pid: int) -> str:
    """Return the fields of ``/proc/PID/stat`` after the program's name: state, parent, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return ""


def command_of(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def free_port() -> int:
    """Return a port that was free just now; another process may be quicker to take it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
