"""The real ``nsmark serve`` in a process of its own, on a free port of this machine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from authority_world import KeyOwner
from processes import PATIENCE, end

_NO_LIMITS = (
    "--reads-per-minute",
    "0",
    "--writes-per-minute",
    "0",
    "--enrolments-per-minute",
    "0",
    "--checks-per-minute",
    "0",
)


@dataclass
class RunningAuthority:
    """A server that runs; its log is complete once it was stopped."""

    process: subprocess.Popen[str]
    url: str
    about: Mapping[str, Any]
    """What ``nsmark serve --json`` printed."""

    folder: Path
    log_file: Path
    admin_token: str

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def register(self, owner: KeyOwner) -> str:
        """Register an owner of this authority's, and return his token."""
        with self.client() as client:
            nonce = client.post("/v1/challenges").json()["nonce"]
            answer = client.post(
                "/v1/owners",
                content=owner.registration(nonce),
                headers={"Content-Type": "application/json"},
            )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def resident_bytes(self) -> int:
        """Memory of the web process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (each for each in status.splitlines() if each.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def stop(self) -> int:
        """Ask it to end, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Pull the plug."""
        self.process.kill()
        self.process.wait()


def file_key(client: httpx.Client, document: bytes, content: bytes) -> httpx.Response:
    return client.post(
        "/v1/filings",
        files={
            "envelope": ("envelope.json", io.BytesIO(document), "application/json"),
            "content": ("owner.nsmark", io.BytesIO(content), "application/octet-stream"),
        },
    )


@contextlib.contextmanager
def running_authority(
    folder: Path, *options: str, worker: bool = False, limits: bool = False
) -> Iterator[RunningAuthority]:
    """Run ``nsmark serve`` for as long as the block lasts.

    Args:
        folder: Where the authority's folder, its log and an admin's token are put.
        options: Further options, such as ``--name``.
        worker: Whether it starts a worker.
        limits: Whether calls are counted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token_file = folder / "admin-token"
    token_file.unlink(missing_ok=True)
    log_file = folder / "serve.log"
    command = [
        *(sys.executable, "-m", "nsmark", "serve", "--json", "--port", "0"),
        *("--folder", str(folder / "authority"), "--admin-token", str(token_file)),
        # Work that takes only what nobody else wants may never be done beside others.
        *(("--worker-niceness", "0") if worker else ("--no-worker",)),
        *(() if limits else _NO_LIMITS),
        *options,
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    try:
        about = _read_document(process, log_file)
        yield RunningAuthority(
            process=process,
            url=about["url"],
            about=about,
            folder=folder / "authority",
            log_file=log_file,
            admin_token=token_file.read_text().strip(),
        )
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        end(process)


def _read_document(process: subprocess.Popen[str], log_file: Path) -> dict[str, Any]:
    """Return the JSON document that is printed when the server listens."""
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                return dict(json.loads("".join(lines)))
    finally:
        watchdog.cancel()
    raise AssertionError(f"nsmark serve did not start: {log_file.read_text()[-2000:]}")
