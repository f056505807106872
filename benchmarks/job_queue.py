"""Commands that wait for each other, several at a time: small models leave most of a GPU idle."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TRIAL = "import torch; x = torch.ones(8, 8, device='cuda'); print(float((x @ x).sum()))"
_PATIENCE = 30.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""Variables of jobs of which there are more than cores; what they say is in their logs at once."""

GIVES_WAY = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""To NVIDIA's Multi-Process Service: below normal."""


@dataclass(frozen=True)
class Job:
    """A Python script with its arguments."""

    name: str
    words: tuple[str, ...]
    after: tuple[str, ...] = ()
    """Names of jobs whose results it needs."""
    niceness: int = 0
    """More gives way to others on the CPU; above 0 also on a shared GPU."""


@dataclass
class Ended:
    """How a job ended."""

    name: str
    status: int | None
    """None where it was stopped for want of time, or never began."""
    seconds: float = 0.0


class JobQueue:
    """Starts jobs as soon as what they need is there."""

    def __init__(
        self,
        jobs: Sequence[Job],
        logs: Path,
        environment: dict[str, str] | None = None,
        most: int = 16,
    ) -> None:
        """Prepare.

        Args:
            jobs: What is to be done, the more urgent first; each names only jobs that are there.
            logs: A folder for what they print.
            environment: Variables beside this process's own.
            most: Jobs at a time.
        """
        names = {job.name for job in jobs}
        unknown = {name for job in jobs for name in job.after} - names
        if unknown or len(names) < len(jobs):
            raise ValueError(f"jobs must be named once, and all that are waited for: {unknown}")
        self.waiting = list(jobs)
        self.logs = logs
        self.environment = {**os.environ, **(environment or {})}
        self.most = most
        self.running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self.ended: dict[str, Ended] = {}
        self.started = time.monotonic()

    def run(self, seconds: float | None = None) -> list[Ended]:
        """Run all; after so many seconds stop what is left, and what it has started."""
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            while self._begin() or self.running:
                time.sleep(0.2)
                self._look()
                if seconds is not None and time.monotonic() - self.started > seconds:
                    break
        finally:
            self._stop()
        for job in self.waiting:
            self.ended[job.name] = Ended(job.name, None)
        return list(self.ended.values())

    def _begin(self) -> bool:
        """Start what can be started; return whether anything was."""
        began = False
        for job in list(self.waiting):
            states = [self.ended.get(name) for name in job.after]
            if any(state is not None and state.status != 0 for state in states):
                self.waiting.remove(job)
                self._end(Ended(job.name, None))
            elif all(state is not None for state in states) and len(self.running) < self.most:
                self.waiting.remove(job)
                self._start(job)
                began = True
        return began

    def _start(self, job: Job) -> None:
        words = ["nice", "-n", str(job.niceness), sys.executable, *job.words]
        with (self.logs / f"{job.name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own scripts
                words,
                env=self.environment | (GIVES_WAY if job.niceness > 0 else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running[job.name] = (process, time.monotonic())
        self._say(f"began {job.name}")

    def _look(self) -> None:
        for name, (process, began) in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                if process.returncode:  # what it started may still run
                    _kill_group(process, signal.SIGKILL)
                self._end(Ended(name, process.returncode, time.monotonic() - began))

    def _end(self, ended: Ended) -> None:
        self.ended[ended.name] = ended
        unfinished = "stopped" if ended.seconds else "never began"
        how = {None: unfinished, 0: "done"}.get(ended.status, f"failed ({ended.status})")
        self._say(f"{how}: {ended.name}, {ended.seconds:.0f} s")
        if ended.status:
            lines = (self.logs / f"{ended.name}.log").read_text(errors="replace").splitlines()
            print("\n".join(lines[-8:]), file=sys.stderr, flush=True)

    def _stop(self) -> None:
        for process, _ in self.running.values():
            _kill_group(process, signal.SIGTERM)
        for name, (process, began) in self.running.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            _kill_group(process, signal.SIGKILL)
            process.wait()
            self._end(Ended(name, None, time.monotonic() - began))
        self.running.clear()

    def _say(self, line: str) -> None:
        print(f"{time.monotonic() - self.started:.0f} s: {line}", file=sys.stderr, flush=True)


def _kill_group(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)


@contextlib.contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """Let processes use a GPU at the same time rather than by turns, where that works.

    NVIDIA's Multi-Process Service is started for our own processes alone, tried out, and ended.
    Yields the variables with which they find it; none where there is no such service.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        names = {f"CUDA_MPS_{kind}_DIRECTORY": folder for kind in ("PIPE", "LOG")}
        environment = {**os.environ, **names}

        def call(*words: str, said: str | None = None) -> None:
            subprocess.run(  # noqa: S603 - the service, and a trial of it
                words,
                env=environment,
                input=said,
                capture_output=True,
                check=True,
                timeout=_PATIENCE,
                text=True,
            )

        try:
            call(control, "-d")
            call(sys.executable, "-c", _TRIAL)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"processes take turns on the GPU: {error}", file=sys.stderr)
            names = {}
        try:
            yield names
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                call(control, said="quit -t 1\n")
