"""A real PostgreSQL server in a temporary folder, on a free port of this machine.

The server refuses to run as root; then it runs as the user ``postgres``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pg8000.native
import pytest

from processes import PATIENCE, free_port

_ACCOUNT = "postgres"


def find_binaries() -> Path:
    """Return the folder of initdb and pg_ctl, or skip the test."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    on_path = shutil.which("pg_ctl")
    for folder in ([Path(on_path).parent] if on_path else []) + installed:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.skip("no PostgreSQL server (initdb, pg_ctl) is installed")


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


class PostgresServer:
    """Give each test a new, empty database."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self._folder = folder
        self._binaries = binaries
        self._numbers = itertools.count()
        self.port = 0

    def start(self) -> None:
        self._run("initdb", "--auth=trust", "--username=nsmark", "--encoding=UTF8", "--no-sync")
        for attempt in range(9):
            self.port = free_port()
            try:
                self._start()
            except subprocess.CalledProcessError:  # somebody else was quicker to take the port
                if attempt == 8:
                    raise
            else:
                return

    def _start(self) -> None:
        # Nobody pulls this machine's plug, and waiting for the disk costs a minute at the end.
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self._folder}"
        log = str(self._folder / "log.txt")
        self._control("start", "--log", log, "--options", options)

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "--mode", mode)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", *arguments, "--wait", "--timeout", f"{PATIENCE:.0f}")

    def new_database(self) -> str:
        """Create a database and return its URL."""
        name = f"authority{next(self._numbers)}"
        connection = pg8000.native.Connection(
            "nsmark", host="127.0.0.1", port=self.port, database="postgres"
        )
        try:
            connection.run(f"CREATE DATABASE {name}")
        finally:
            connection.close()
        return f"postgresql://nsmark@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "--pgdata", str(self._folder / "data")]
        if os.geteuid() == 0:
            command = ["runuser", "-u", _ACCOUNT, "--", *command]
        # pg_ctl's child keeps the output open: a pipe would never end.
        with (self._folder / f"{program}.txt").open("ab") as output:
            subprocess.run(
                [*command, *arguments],
                check=True,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=2 * PATIENCE,
            )


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run a server for as long as the block lasts; skip the test where there is none."""
    binaries = find_binaries()
    # Not pytest's folder: another user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="nsmark-postgres-"))
    try:
        if os.geteuid() == 0:
            try:
                account = pwd.getpwnam(_ACCOUNT)
            except KeyError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        server = PostgresServer(folder, binaries)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
