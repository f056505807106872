"""The file of a back-up: records one after the other, encrypted as a whole unless wished otherwise.

Layout: 16 bytes magic and one byte: 0 plain, 1 encrypted. Encrypted: log2(N), r, p of scrypt (one
byte each), 32 bytes salt; then chunks of 1 MiB, each with its 16-byte tag (AES-256-GCM), to which
everything before the first chunk is bound. A chunk's nonce counts, and says whether it is the last:
none can be moved or left out.

Inside: records of one byte kind, 8 bytes length (big-endian) and content. The last is the SHA-256
of everything inside before it. Nothing is compressed: a file cannot unfold into more than it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from nsmark.errors import FileAccessError, InputError, UsageError

CHUNK_BYTES = 1 << 20

_MAGIC = b"nsmark/backup/1\x00"
_PLAIN, _ENCRYPTED = b"\x00", b"\x01"
_SALT_BYTES = 32
_TAG_BYTES = 16
_LOG_N, _R, _P = 17, 8, 1
# A hostile file must not make us spend gigabytes or minutes: at most 1 GiB and a few seconds.
_MAX_WORK = 2**20 * 8
_INNER, _LAST = b"\x00", b"\x01"
_END = b"E"
_LENGTH_BYTES = 8
_HINT = "take another copy of the back-up, or an older one"


class ArchiveWriter:
    """Writes records; the archive is whole after :meth:`finish`."""

    def __init__(self, stream: BinaryIO, passphrase: bytes | None) -> None:
        """Begin an archive.

        Args:
            stream: Where it goes.
            passphrase: Under which it is encrypted; plain, if None.
        """
        self._stream = stream
        self._outer = hashlib.sha256()
        self._inner = hashlib.sha256()
        self._num_bytes = 0
        self._waiting = bytearray()
        self._number = 0
        self._cipher: AESGCM | None = None
        self._head = _MAGIC + _PLAIN
        if passphrase is not None:
            if not passphrase:
                raise UsageError("the passphrase is empty", "give at least one character")
            salt = os.urandom(_SALT_BYTES)
            self._head = _MAGIC + _ENCRYPTED + bytes([_LOG_N, _R, _P]) + salt
            self._cipher = AESGCM(_derive(passphrase, salt, _LOG_N, _R, _P))
        self._emit(self._head)

    def record(self, kind: bytes, content: bytes) -> None:
        """Write a record."""
        self._write(kind + len(content).to_bytes(_LENGTH_BYTES, "big"))
        self._write(content)

    def record_file(self, kind: bytes, name: bytes, source: BinaryIO, num_bytes: int) -> None:
        """Write a record of a name and a file of so many bytes, without holding it in memory.

        Raises:
            FileAccessError: The file has fewer bytes.
        """
        self._write(kind + (len(name) + num_bytes).to_bytes(_LENGTH_BYTES, "big") + name)
        left = num_bytes
        while left:
            piece = source.read(min(left, CHUNK_BYTES))
            if not piece:
                raise FileAccessError("a file became shorter while it was read", "try again")
            self._write(piece)
            left -= len(piece)

    def finish(self) -> tuple[str, int]:
        """Write the end; return SHA-256 (hex) and size of the whole file."""
        self.record(_END, self._inner.digest())
        if self._cipher is not None:
            self._seal(_LAST, bytes(self._waiting))
        return self._outer.hexdigest(), self._num_bytes

    def _write(self, content: bytes) -> None:
        self._inner.update(content)
        if self._cipher is None:
            self._emit(content)
            return
        self._waiting += content
        # A full chunk waits until there is more: it may be the last.
        while len(self._waiting) > CHUNK_BYTES:
            self._seal(_INNER, bytes(self._waiting[:CHUNK_BYTES]))
            del self._waiting[:CHUNK_BYTES]

    def _seal(self, kind: bytes, chunk: bytes) -> None:
        assert self._cipher is not None  # noqa: S101 - for the type checker
        self._emit(self._cipher.encrypt(_nonce(kind, self._number), chunk, self._head))
        self._number += 1

    def _emit(self, content: bytes) -> None:
        self._outer.update(content)
        self._num_bytes += len(content)
        self._stream.write(content)


class ArchiveReader:
    """Reads records in their order; nothing in them is to be believed before :meth:`finish`."""

    def __init__(self, stream: BinaryIO, passphrase: bytes | None) -> None:
        """Begin to read.

        Raises:
            InputError: This is no back-up, it was altered, or the passphrase is wrong.
            UsageError: It is encrypted, and there is no passphrase.
        """
        self._inner = hashlib.sha256()
        self._ready = bytearray()
        self._refill: Callable[[], bytes] = lambda: stream.read(CHUNK_BYTES)
        head = _read_head(stream)
        if head[len(_MAGIC) :] == _ENCRYPTED:
            if passphrase is None:
                raise UsageError("the back-up is encrypted", "give its passphrase")
            self._refill = _Decryption(stream, head, passphrase).next_chunk

    def begin(self, kind: bytes, max_bytes: int) -> int:
        """Return the length of the next record, which must be of this kind and not larger."""
        found = self.read(1)
        length = int.from_bytes(self.read(_LENGTH_BYTES), "big")
        if found != kind:
            raise altered("its parts are not in their order")
        if length > max_bytes:
            raise altered("a part is larger than it can be")
        return length

    def record(self, kind: bytes, max_bytes: int) -> bytes:
        """Return the content of the next record, which must be of this kind and not larger."""
        return self.read(self.begin(kind, max_bytes))

    def read(self, num_bytes: int) -> bytes:
        """Return so many bytes of the record that was begun."""
        parts, left = [], num_bytes
        while left:
            piece = self._some(left)
            parts.append(piece)
            left -= len(piece)
        return b"".join(parts)

    def copy(self, target: BinaryIO, num_bytes: int) -> None:
        """Write so many bytes of the record that was begun into a file."""
        left = num_bytes
        while left:
            piece = self._some(left)
            target.write(piece)
            left -= len(piece)

    def finish(self) -> None:
        """Check that everything was read, that it is what was written, and that nothing follows.

        Raises:
            InputError: It is not so.
        """
        expected = self._inner.digest()
        if self.record(_END, len(expected)) != expected:
            raise altered("its digest is another")
        if self._ready or self._refill():
            raise altered("something follows its end")

    def _some(self, at_most: int) -> bytes:
        if not self._ready:
            self._ready += self._refill()
            if not self._ready:
                raise altered("it is truncated")
        piece = bytes(self._ready[:at_most])
        del self._ready[:at_most]
        self._inner.update(piece)
        return piece


class _Decryption:
    """Chunks of an encrypted archive, each checked before it is given out."""

    def __init__(self, stream: BinaryIO, head: bytes, passphrase: bytes) -> None:
        parameters = stream.read(3 + _SALT_BYTES)
        if len(parameters) < 3 + _SALT_BYTES:
            raise altered("it is truncated")
        log_n, r, p = parameters[:3]
        # scrypt itself is not defined for N ≥ 2^(16 r).
        if not (1 <= log_n < 16 * r and p >= 1 and 2**log_n * r * p <= _MAX_WORK):
            raise altered("it asks for unreasonable work")
        self._cipher = AESGCM(_derive(passphrase, parameters[3:], log_n, r, p))
        self._head = head + parameters
        self._stream = stream
        self._number = 0
        self._following = self._read()

    def next_chunk(self) -> bytes:
        """Return a chunk; none after the last."""
        sealed, self._following = self._following, self._read()
        if not sealed:
            return b""
        nonce = _nonce(_INNER if self._following else _LAST, self._number)
        try:
            chunk = self._cipher.decrypt(nonce, sealed, self._head)
        except InvalidTag as error:
            if self._number == 0:
                raise InputError(
                    "the passphrase is wrong, or the back-up was altered or truncated",
                    f"check the passphrase; {_HINT}",
                ) from error
            raise altered("it was altered or truncated") from error
        self._number += 1
        return chunk

    def _read(self) -> bytes:
        return self._stream.read(CHUNK_BYTES + _TAG_BYTES)


def is_encrypted_archive(path: Path) -> bool:
    """Return whether a back-up needs a passphrase.

    Raises:
        FileAccessError: It cannot be read.
        InputError: This is no back-up.
    """
    try:
        with path.open("rb") as stream:
            return _read_head(stream)[len(_MAGIC) :] == _ENCRYPTED
    except OSError as error:
        raise FileAccessError(
            f"cannot read back-up {path}: {error.strerror or error}", "check the path"
        ) from error


def altered(reason: str) -> InputError:
    """Return the error for an archive that is not as it was written."""
    return InputError(f"this is no sound back-up: {reason}", _HINT)


def _read_head(stream: BinaryIO) -> bytes:
    head = stream.read(len(_MAGIC) + 1)
    if head[:-1] != _MAGIC or head[-1:] not in (_PLAIN, _ENCRYPTED):
        raise InputError("this is no back-up of an authority", "give what `authority backup` wrote")
    return head


def _derive(passphrase: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**log_n, r=r, p=p).derive(passphrase)


def _nonce(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(11, "big")
