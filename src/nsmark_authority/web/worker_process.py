"""The worker as a process beside the server: started again if it ends by itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

_log = logging.getLogger("nsmark_authority.worker_process")
PRIVATE_UMASK = 0o077
"""What server and worker write is for the user alone who runs them."""

_STOP_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_LONG_RUN_SECONDS = 60.0


class WorkerProcess:
    """Runs ``python -m nsmark_authority.worker`` for as long as the block lasts."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "nsmark_authority.worker", *arguments]
        self._environment = dict(os.environ) | dict(variables)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="worker", daemon=True)

    def __enter__(self) -> WorkerProcess:
        self._start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the worker to end, and make it if it does not."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if not self._stopping.is_set():
                # In a group of its own: Ctrl-C goes to us alone, and we tell the worker. Not in a
                # session: a kernel that weighs sessions would give the worker half of everything.
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                    umask=PRIVATE_UMASK,
                )

    def _watch(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set() and self._process is not None:
            begin = time.monotonic()
            status = self._process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - begin > _LONG_RUN_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _log.error("the worker ended (%s) and is started again in %.0f s", status, pause)
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self._start()
