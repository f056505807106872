"""Sealed files: encrypted at rest, named by the SHA-256 of their content, never half written.

Layout: 16 bytes magic, 32 bytes salt; chunks of 1 MiB, each with its 16-byte tag; a tag of 16 bytes
that binds the whole to its digest and size. Every file has a key of its own (HKDF of the data key
and the salt). A chunk's nonce counts, and says whether it is the last: none can be moved or left
out. Content of any size passes through memory chunk by chunk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from nsmark.errors import FileAccessError, InputError
from nsmark.files import sync_folder, write_errors
from nsmark_authority.errors import AuthorityError, NotFoundError

if sys.platform != "win32":
    import fcntl

DATA_KEY_BYTES = 32
CHUNK_BYTES = 1 << 20

_MAGIC = b"nsmark/blob/1".ljust(16, b"\x00")
_SALT_BYTES = 32
_HEAD_BYTES = len(_MAGIC) + _SALT_BYTES
_TAG_BYTES = 16
_PARTIAL = ".partial-"
_INNER, _LAST, _WHOLE = b"\x00", b"\x01", b"\x02"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DISK_HINT = "see whether the authority's disk is there and has space"


@runtime_checkable
class Readable(Protocol):
    """Where content comes from: a file, an upload."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file that is sealed and on the disk, but not yet under its final name."""

    sha256: str
    num_bytes: int
    path: Path = field(repr=False)


class Staging:
    """Files on their way into a store: what is not kept is gone when the block is left."""

    def __init__(self, store: SealedStore) -> None:
        self._store = store
        self._staged: list[Path] = []

    def add(self, source: Readable, max_bytes: int, what: str = "file") -> SealedFile:
        """Seal everything a source gives.

        Raises:
            InputError: It has more than ``max_bytes``.
            FileAccessError: It cannot be written.
        """
        return self._store.seal(source, max_bytes, what, self._staged)

    def chunks(self, file: SealedFile) -> Iterator[bytes]:
        """Yield the content of a file that was added, in pieces."""
        return self._store.unseal(file.path, file.sha256)

    def keep(self) -> None:
        """Give every file its final name; they are on the disk when this returns."""
        self._store.rename(self._staged)

    def drop(self) -> None:
        """Remove what was not kept."""
        for path in self._staged:
            path.unlink(missing_ok=True)


class SealedStore:
    """A folder of sealed files; threads and processes may share it."""

    def __init__(self, folder: Path, data_key: bytes) -> None:
        if len(data_key) != DATA_KEY_BYTES:
            raise AuthorityError("the data key has not 32 bytes", "restore it from a backup")
        self._folder = folder
        self._data_key = data_key
        with write_errors(folder, _DISK_HINT):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __contains__(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    def path(self, sha256: str) -> Path:
        """Return where the sealed file of a content is, or would be."""
        return self._path(sha256)

    @contextlib.contextmanager
    def staging(self) -> Iterator[Staging]:
        """Take files in; to be left only when the rows that name those kept are committed.

        Until then :meth:`remove_unreferenced` stays away.
        """
        staging = Staging(self)
        with self._locked(fcntl.LOCK_SH):
            try:
                yield staging
            finally:
                staging.drop()

    def seal(self, source: Readable, max_bytes: int, what: str, staged: list[Path]) -> SealedFile:
        """Seal a source into a file without a final name, and add it to those staged."""
        with write_errors(self._folder, _DISK_HINT):
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=_PARTIAL)
            path = Path(name)
            staged.append(path)
            with os.fdopen(handle, "wb") as target:
                sha256, num_bytes = self._seal(source, target, max_bytes, what)
                target.flush()
                os.fsync(target.fileno())
            # The digest travels in the name, so that keeping needs no second list.
            named = path.with_name(f"{path.name}.{sha256}")
            path.rename(named)
            staged[-1] = named
        return SealedFile(sha256, num_bytes, named)

    def rename(self, staged: list[Path]) -> None:
        """Give sealed files their final names, durably."""
        with write_errors(self._folder, _DISK_HINT):
            folders = set()
            for path in staged:
                final = self._path(path.name.rpartition(".")[2])
                if not final.parent.is_dir():
                    final.parent.mkdir(mode=0o700, exist_ok=True)
                    folders.add(self._folder)
                path.replace(final)
                folders.add(final.parent)
            for folder in folders:
                sync_folder(folder)
        staged.clear()

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """Yield the content of a sealed file in pieces, each checked before it is given out.

        Raises:
            NotFoundError: There is no such file.
            AuthorityError: It is damaged, or another one under this name.
        """
        return self.unseal(self._path(sha256), sha256)

    def unseal(self, path: Path, sha256: str) -> Iterator[bytes]:
        """Yield the content of the sealed file at a path, which must be this one."""
        try:
            stream = path.open("rb")
        except FileNotFoundError as error:
            raise NotFoundError(
                f"there is no content {sha256[:16]}…", "it was never handed over, or was removed"
            ) from error
        except OSError as error:
            raise FileAccessError(
                f"cannot read sealed content: {error.strerror or error}", _DISK_HINT
            ) from error
        with stream:
            yield from self._unseal(stream, sha256)

    def read(self, sha256: str, max_bytes: int) -> bytes:
        """Return a whole content that must not be larger than ``max_bytes``."""
        parts, size = [], 0
        for chunk in self.chunks(sha256):
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise InputError(
                    f"the content {sha256[:16]}… is larger than {max_bytes:,} bytes",
                    "read it in pieces",
                )
        return b"".join(parts)

    def copy(self, sha256: str, path: Path) -> None:
        """Write a content, unsealed, to a new file for its owner's eyes only."""
        with write_errors(path, "choose a folder you can write to, with enough space"):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as target:
                for chunk in self.chunks(sha256):
                    target.write(chunk)

    def names(self) -> Iterator[str]:
        """Yield the digests of all files."""
        for path in sorted(self._folder.glob("[0-9a-f][0-9a-f]/*")):
            if _DIGEST.fullmatch(path.name):
                yield path.name

    def remove_unreferenced(self, find_named: Callable[[], Container[str]]) -> int:
        """Remove what no row names, such as an upload that was cut off; return how many.

        Does nothing while somebody writes: his rows are still to come. The named ones are asked
        for when nobody writes any more.
        """
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                named = find_named()
                loose = [self._path(name) for name in self.names() if name not in named]
                loose += self._folder.glob(f"{_PARTIAL}*")
                for path in loose:
                    path.unlink(missing_ok=True)
                return len(loose)
        except BlockingIOError:
            return 0

    def _path(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise InputError("this is no SHA-256 digest in hex", "give 64 hex digits")
        return self._folder / sha256[:2] / sha256

    @contextlib.contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, operation)
            yield
        finally:
            os.close(handle)

    def _seal(
        self, source: Readable, target: BinaryIO, max_bytes: int, what: str
    ) -> tuple[str, int]:
        salt = os.urandom(_SALT_BYTES)
        cipher = self._cipher(salt)
        target.write(_MAGIC + salt)
        digest, size, number = hashlib.sha256(), 0, 0
        chunk = _read_chunk(source)
        while True:
            size += len(chunk)
            if size > max_bytes:
                raise InputError(
                    f"the {what} is larger than {max_bytes:,} bytes",
                    "the authority takes no larger ones",
                )
            digest.update(chunk)
            following = _read_chunk(source) if len(chunk) == CHUNK_BYTES else b""
            kind = _INNER if following else _LAST
            target.write(cipher.encrypt(_nonce(kind, number), chunk, None))
            if not following:
                break
            chunk, number = following, number + 1
        target.write(cipher.encrypt(_nonce(_WHOLE, 0), b"", _whole(digest.digest(), size)))
        return digest.hexdigest(), size

    def _unseal(self, stream: BinaryIO, sha256: str) -> Iterator[bytes]:
        sealed_bytes = os.fstat(stream.fileno()).st_size - _HEAD_BYTES - _TAG_BYTES
        head = stream.read(_HEAD_BYTES)
        num_chunks = max(1, -(-sealed_bytes // (CHUNK_BYTES + _TAG_BYTES)))
        size = sealed_bytes - num_chunks * _TAG_BYTES
        if not head.startswith(_MAGIC) or size < 0:
            raise _damaged(sha256)
        cipher = self._cipher(head[len(_MAGIC) :])
        try:
            # First whether it is what its name says: nothing of another file is given out.
            stream.seek(-_TAG_BYTES, os.SEEK_END)
            whole = _whole(bytes.fromhex(sha256), size)
            cipher.decrypt(_nonce(_WHOLE, 0), stream.read(_TAG_BYTES), whole)
            stream.seek(_HEAD_BYTES)
            for number in range(num_chunks):
                is_last = number == num_chunks - 1
                length = size - number * CHUNK_BYTES if is_last else CHUNK_BYTES
                sealed = stream.read(length + _TAG_BYTES)
                yield cipher.decrypt(_nonce(_LAST if is_last else _INNER, number), sealed, None)
        except InvalidTag as error:
            raise _damaged(sha256) from error

    def _cipher(self, salt: bytes) -> AESGCM:
        derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=_MAGIC)
        return AESGCM(derivation.derive(self._data_key))


def _read_chunk(source: Readable) -> bytes:
    """Return a full chunk unless the source ends; uploads come in pieces of any length."""
    parts, missing = [], CHUNK_BYTES
    while missing and (part := source.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _nonce(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(11, "big")


def _whole(digest: bytes, size: int) -> bytes:
    return digest + size.to_bytes(8, "big")


def _damaged(sha256: str) -> AuthorityError:
    return AuthorityError(
        f"the sealed content {sha256[:16]}… is damaged, or the data key is another",
        "restore the authority's folder from a backup",
    )
