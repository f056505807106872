"""Progress on standard error: a live line on a terminal, a line every ten seconds elsewhere.

A thread of its own writes it: work that says nothing for minutes still shows that it goes on.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

_TERMINAL_SECONDS, _LOG_SECONDS = 0.5, 10.0
_BAR_WIDTH = 12


class Progress:
    """Where a command stands: its stage, how much of it is done, and how long it may still take."""

    def __init__(self, stage: str, announces: bool = False) -> None:
        self._lock, self._announces, self._name = threading.Lock(), announces, stage
        self.stage(stage)

    def stage(self, name: str) -> None:
        """Begin another part of the work; a log is told at once."""
        if self._announces and name != self._name:
            _write(f"{name} …\n")
        with self._lock:
            self._name, self._began = name, time.monotonic()
            self._done, self._total, self._text = 0, 0, ""
            # What came before the first piece was loading: it tells nothing of the pieces' pace.
            self._first: tuple[int, float] | None = None

    def __call__(self, done: int, total: int, text: str = "") -> None:
        """Say how far the stage is, and what is done or what it looks like."""
        with self._lock:
            if self._first is None or done < self._first[0]:
                self._first = (done, time.monotonic())
            self._done, self._total, self._text = done, total, text

    @property
    def has_counted(self) -> bool:
        """Whether it is known how much there is to do."""
        return self._total > 0

    def line(self, bar: bool = False) -> str:
        """Return where it stands, in a line."""
        with self._lock:
            now = time.monotonic()
            parts = [self._name]
            if self._total:
                if bar:
                    filled = min(_BAR_WIDTH, _BAR_WIDTH * self._done // self._total)
                    parts.append("█" * filled + "░" * (_BAR_WIDTH - filled))
                parts.append(f"{self._done:,} of {self._total:,} {self._text}".rstrip())
            parts.append(self._left(now) or f"{now - self._began:.0f} s")
            return "  ".join(parts)

    def _left(self, now: float) -> str:
        if self._first is None or not self._first[0] < self._done < self._total:
            return ""
        first, since = self._first
        return (
            f"about {(now - since) / (self._done - first) * (self._total - self._done):.0f} s left"
        )


@contextlib.contextmanager
def progress_bar(stage: str, quiet: bool) -> Iterator[Progress]:
    """Yield where a command tells how far it is; nothing is shown where ``quiet``."""
    is_terminal, ended = sys.stderr.isatty(), threading.Event()
    progress = Progress(stage, announces=not (quiet or is_terminal))
    if quiet:
        yield progress
        return

    def show() -> None:
        while not ended.wait(_TERMINAL_SECONDS if is_terminal else _LOG_SECONDS):
            if is_terminal:  # the cursor goes back: whatever is printed next stands there
                width = shutil.get_terminal_size().columns - 1
                _write(f"\r\033[K{progress.line(bar=True)[:width]}\r")
            else:
                _write(progress.line() + "\n")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
        if is_terminal:
            _write("\r\033[K")
    if not is_terminal and progress.has_counted:
        _write(progress.line() + "\n")


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the reader went away: the work goes on
        sys.stderr.write(text)
        sys.stderr.flush()
