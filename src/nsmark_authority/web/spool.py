"""Uploads under way: on the disk without a name, encrypted, within quotas, gone when closed.

What is uploaded may be a secret. Each file has a key of its own that only this process knows, so
that nothing can be read from the disk later, whatever happens to the process.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from pathlib import Path
from typing import IO, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from nsmark.files import write_errors
from nsmark_authority.web.errors import WebError

_KEY_BYTES = 32
_NONCE_BYTES = 16
_HINT = "see whether the authority's disk is there and has space"


class Uploader(NamedTuple):
    """Whose upload it is."""

    owner: str
    """Fingerprint, or what else tells callers apart."""

    address: str
    """Where he calls from: whoever can register one key can register a hundred."""


class Spool:
    """A folder for uploads, of a limited size in all.

    Nobody fills it alone: one owner has a quarter of it at most, all owners of one address half.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._used = 0
        self._held: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        with write_errors(folder, _HINT):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def used_bytes(self) -> int:
        """Bytes of all uploads that are under way."""
        return self._used

    def open(self, who: Uploader) -> SpooledFile:
        """Return a new, empty file of somebody's."""
        with write_errors(self._folder, _HINT):
            # On Linux it never has a name; elsewhere the name is gone before this returns.
            stream = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        return SpooledFile(self, who, stream)

    def take(self, who: Uploader, num_bytes: int) -> None:
        """Count bytes in.

        Raises:
            WebError: There is no room for them (503), or he has his share already (429).
        """
        shares = {("owner", who.owner): 4, ("address", who.address): 2}
        with self._lock:
            if self._used + num_bytes > self._max_bytes:
                raise _refusal(503, "too much is being uploaded at this moment", "try again later")
            for name, parts in shares.items():
                if self._held.get(name, 0) + num_bytes > self._max_bytes // parts:
                    raise _refusal(
                        429,
                        f"too much is being uploaded by this {name[0]} at this moment",
                        "try again when your other uploads are done",
                    )
            self._used += num_bytes
            for name in shares:
                self._held[name] = self._held.get(name, 0) + num_bytes

    def give_back(self, who: Uploader, num_bytes: int) -> None:
        """Count bytes out."""
        with self._lock:
            self._used -= num_bytes
            for name in (("owner", who.owner), ("address", who.address)):
                left = self._held.pop(name, 0) - num_bytes
                if left:
                    self._held[name] = left


class SpooledFile:
    """A file that is written once and then read, both from the beginning to the end."""

    def __init__(self, spool: Spool, who: Uploader, stream: IO[bytes]) -> None:
        cipher = Cipher(
            algorithms.AES(secrets.token_bytes(_KEY_BYTES)),
            modes.CTR(secrets.token_bytes(_NONCE_BYTES)),
        )
        self._spool = spool
        self._who = who
        self._stream = stream
        self._write = cipher.encryptor()
        self._read = cipher.decryptor()
        self.num_bytes = 0

    def write(self, content: bytes) -> None:
        """Add to the end.

        Raises:
            WebError: The spool is full, or the uploader's share of it.
            FileAccessError: The disk is.
        """
        self._spool.take(self._who, len(content))
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
            self._spool.give_back(self._who, self.num_bytes)


def _refusal(status: int, detail: str, hint: str) -> WebError:
    return WebError(status, detail, hint, {"Retry-After": "60"})
