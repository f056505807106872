"""No test leaves a process behind: what a later test finds running may make it fail.

All that this process starts is marked by a variable of its environment, which children hand on; so
those are found, too, whose parents are dead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from processes import command_of, is_running, parent_of, process_ids, wait_for

_VARIABLE = "STARTED_BY_TESTS_OF"
# They live as long as the process that first needs them, by Python's own design.
_HELPERS = ("multiprocessing.forkserver import", "multiprocessing.resource_tracker import")
_WIDE = ("session", "package", "module", "class")


class Watch:
    """Knows what this process has started, and which of it a fixture still needs.

    A plugin of pytest's: hooks of a ``conftest`` are not called for fixtures of a whole session.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        """Prepare; processes have so many seconds to end by themselves."""
        self._seconds = seconds
        os.environ[_VARIABLE] = str(os.getpid())
        self._mark = f"{_VARIABLE}={os.getpid()}".encode()
        self._strangers: set[int] = set()
        self._needed: dict[str, set[int]] = {scope: set() for scope in _WIDE}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What a fixture starts is needed for as long as its scope lasts."""
        needed = self._needed.get(fixturedef.scope)
        if needed is None:  # no longer than the test
            return (yield)
        before = set(self._started())
        try:
            return (yield)
        finally:
            needed.update(set(self._started()) - before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if nextitem is None:
                self._forget(*_WIDE)
            elif nextitem.path != item.path:
                self._forget("module", "class")
            if left := self._end_what_is_left():
                told = "\n".join([f"{item.nodeid} left processes behind:", *left])
                pytest.fail(told, pytrace=False)

    def _forget(self, *scopes: str) -> None:
        """The fixtures of these scopes are gone."""
        for scope in scopes:
            self._needed[scope].clear()

    def _end_what_is_left(self) -> list[str]:
        """Return the command lines of what a test left behind; now it is ended."""
        with suppress(AssertionError):
            wait_for(lambda: not self._left(), "processes to end by themselves", self._seconds)
        left = {pid: command_of(pid) for pid in self._left()}
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_running, left)), "what was killed to end")
        return [f"{pid}: {command.strip()}" for pid, command in left.items()]

    def _left(self) -> list[int]:
        needed = set().union(*self._needed.values())
        return [pid for pid in self._started() if not self._is_needed(pid, needed)]

    def _is_needed(self, pid: int, needed: set[int]) -> bool:
        is_child = parent_of(pid) == os.getpid()
        if is_child and any(helper in command_of(pid) for helper in _HELPERS):
            return True
        while pid > 1 and pid != os.getpid():
            if pid in needed:
                return True
            pid = parent_of(pid)
        return False

    def _started(self) -> list[int]:
        """Return what this process has started and still runs, by whomever."""
        there = set(process_ids())
        self._strangers &= there  # each is asked once only: there are many of them
        ours = {pid for pid in there - self._strangers if self._is_ours(pid)}
        self._strangers = there - ours
        return [pid for pid in ours if is_running(pid)]

    def _is_ours(self, pid: int) -> bool:
        if parent_of(pid) == os.getpid():
            return True
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
