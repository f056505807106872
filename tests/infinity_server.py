"""infinity-emb, an embeddings server that others wrote, around a model folder.

It needs older packages than nsmark, so it lives in a virtual environment of its own beside the
repository's. ``tests/suspects/test_infinity.py`` makes that; the benchmark of endpoints uses it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from processes import PATIENCE

ROOT = Path(__file__).parent.parent
VENV = ROOT / ".venv-infinity"
VERSION = "0.0.78"
READY = VENV / f".ready-{VERSION}"
PROGRAM = VENV / "bin" / "infinity_emb"


class NotStartedError(RuntimeError):
    """The server ended, or did not answer in time; its last words are in the message."""


class Served:
    """A model folder behind infinity-emb, stopped at the end of the block."""

    def __init__(self, folder: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = log
        self.command = [
            *(str(PROGRAM), "v2", "--model-id", str(folder), "--engine", "torch"),
            *("--device", "cpu", "--dtype", "float32", "--no-bettertransformer"),
            *("--no-model-warmup", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--url-prefix", "/v1", "--served-model-name", "served"),
        ]

    def __enter__(self) -> str:
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
            "OMP_NUM_THREADS": "1",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        try:
            return self.wait_until_ready()
        except BaseException:  # also Ctrl-C while it loads: nobody else would stop it
            self.__exit__()
            raise

    def wait_until_ready(self) -> str:
        """Return the URL once the server answers there."""
        url = f"http://127.0.0.1:{self.port}/v1"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{url}/models", timeout=PATIENCE):  # noqa: S310
                    return url
            except OSError:
                time.sleep(0.3)
        last_words = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise NotStartedError(f"the server did not start: {last_words}")

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
