"""Uploads under way: on the disk without a name, encrypted, within a quota, gone when closed.

What is uploaded may be a secret. Each file has a key of its own that only this process knows, so
that nothing can be read from the disk later, whatever happens to the process.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from pathlib import Path
from typing import IO

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from nsmark.authority.web.errors import WebError
from nsmark.files import write_errors

_KEY_BYTES = 32
_NONCE_BYTES = 16
_HINT = "see whether the authority's disk is there and has space"


class Spool:
    """A folder for uploads, of a limited size in all."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._used = 0
        self._lock = threading.Lock()
        with write_errors(folder, _HINT):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def used_bytes(self) -> int:
        """Bytes of all uploads that are under way."""
        return self._used

    def open(self) -> SpooledFile:
        """Return a new, empty file."""
        with write_errors(self._folder, _HINT):
            # On Linux it never has a name; elsewhere the name is gone before this returns.
            stream = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        return SpooledFile(self, stream)

    def take(self, num_bytes: int) -> None:
        """Count bytes in.

        Raises:
            WebError: There is no room for them (503).
        """
        with self._lock:
            if self._used + num_bytes > self._max_bytes:
                raise WebError(
                    503,
                    "too much is being uploaded at this moment",
                    "try again later",
                    {"Retry-After": "60"},
                )
            self._used += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Count bytes out."""
        with self._lock:
            self._used -= num_bytes


class SpooledFile:
    """A file that is written once and then read, both from the beginning to the end."""

    def __init__(self, spool: Spool, stream: IO[bytes]) -> None:
        cipher = Cipher(
            algorithms.AES(secrets.token_bytes(_KEY_BYTES)),
            modes.CTR(secrets.token_bytes(_NONCE_BYTES)),
        )
        self._spool = spool
        self._stream = stream
        self._write = cipher.encryptor()
        self._read = cipher.decryptor()
        self.num_bytes = 0

    def write(self, content: bytes) -> None:
        """Add to the end.

        Raises:
            WebError: The spool is full.
            FileAccessError: The disk is.
        """
        self._spool.take(len(content))
        self.num_bytes += len(content)
        sealed = memoryview(self._write.update(content))
        with write_errors(Path("upload"), _HINT):
            while sealed:
                sealed = sealed[os.write(self._stream.fileno(), sealed) :]

    def rewind(self) -> None:
        """Read from the beginning, after the last was written."""
        self._stream.seek(0)

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        return self._read.update(self._stream.read(size))

    def close(self) -> None:
        """Remove it."""
        if not self._stream.closed:
            self._stream.close()
            self._spool.give_back(self.num_bytes)
