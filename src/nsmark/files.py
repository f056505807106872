"""Reading with a bound, writing all or nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nsmark.errors import FileAccessError, InputError, NsmarkError

if sys.platform != "win32":
    import fcntl


def read_bounded(path: Path, max_bytes: int, what: str = "file") -> bytes:
    """Return the content of a file that must not be larger than ``max_bytes``.

    Raises:
        FileAccessError: It cannot be read.
        InputError: It is larger.
    """
    try:
        with path.open("rb") as handle:
            # A regular file tells its size before a byte of it is read; a pipe does not.
            too_large = os.fstat(handle.fileno()).st_size > max_bytes
            content = b"" if too_large else handle.read(max_bytes + 1)
    except OSError as error:
        raise FileAccessError(
            f"cannot read {what} {path}: {error.strerror or error}", "check the path"
        ) from error
    if too_large or len(content) > max_bytes:
        raise InputError(
            f"{what} {path} is larger than {max_bytes:,} bytes",
            f"this is not a {what} nsmark wrote; check the path",
        )
    return content


def write_atomic(path: Path, content: bytes, mode: int = 0o644, *, overwrite: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
        path: Where the file will be.
        content: All of it.
        mode: Permission bits, in force from the first byte on.
        overwrite: Whether an existing file may be replaced.

    Raises:
        FileAccessError: The folder is not writable, or the file exists and must stay.
    """
    if not overwrite:
        ensure_new_file(path)
    give_name = Path.replace if overwrite else _link_new
    with _temporary_file(path, mode, give_name) as stream:
        stream.write(content)


@contextlib.contextmanager
def new_file(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Write a file piece by piece that appears under its name only when it is whole, and is new.

    Raises:
        FileAccessError: The file exists, or cannot be written.
    """
    ensure_new_file(path)

    def give_name(temporary: Path, path: Path) -> None:
        _link_new(temporary, path)
        sync_folder(path.parent)

    with _temporary_file(path, mode, give_name) as stream:
        yield stream


@contextlib.contextmanager
def _temporary_file(
    path: Path, mode: int, give_name: Callable[[Path, Path], object]
) -> Iterator[BinaryIO]:
    """Write a file beside its place, on the disk before it gets its name; else nothing is left."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp creates with mode 0600: a private key is never readable by others, even briefly.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode)
        give_name(temporary, path)
    except OSError as error:
        # Only link() complains about the name itself; mkdir() means a file in the folder's place.
        if temporary is not None and isinstance(error, FileExistsError):
            raise exists_already(path) from error
        raise FileAccessError(
            f"cannot write {path}: {error.strerror or error}",
            "choose a folder you can write to, with enough space",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _link_new(temporary: Path, path: Path) -> None:
    """Give a file its final name; link() fails if it was taken, where rename() would replace it."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        ensure_new_file(path)  # a file system without hard links: look, then rename
        temporary.replace(path)


def write_json(path: Path, document: Any, mode: int = 0o644) -> None:
    """Write a JSON document for people and programs: indented, sorted, one final newline."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode("utf-8"), mode)


@contextlib.contextmanager
def write_errors(path: Path, hint: str) -> Iterator[None]:
    """Turn every failed write in the block, such as to a full disk, into one with this hint.

    Raises:
        FileAccessError: Something in the block could not be written.
    """
    try:
        yield
    except FileAccessError as error:
        raise FileAccessError(str(error), hint) from error
    except NsmarkError:
        raise
    except Exception as error:
        # safetensors and tokenizers raise kinds of their own, with the system's error as text.
        if not isinstance(error, OSError) and "(os error " not in str(error):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise FileAccessError(f"cannot write {path}: {reason}", hint) from error


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can tell."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(path: Path, hint: str) -> Iterator[None]:
    """Keep other threads and processes out that lock the same; closing the handle unlocks.

    Args:
        path: A folder, or a file, which is made if it is not there.
        hint: What helps where it cannot be locked.

    Raises:
        FileAccessError: It cannot be opened or locked.
    """
    if sys.platform == "win32":
        raise FileAccessError("a folder cannot be locked on Windows", "run this on Linux or macOS")
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    with write_errors(path, hint):
        handle = os.open(path, flags, 0o600)
    try:
        with write_errors(path, hint):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder that appears under its final name only when everything in it is written.

    Yields a staging folder beside ``path``; on any error or interruption it is removed and
    ``path`` stays as it was. An existing, non-empty folder is never touched.

    Raises:
        FileAccessError: The folder exists and holds something, or cannot be created.
    """
    ensure_new_folder(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-"))
    except OSError as error:
        raise FileAccessError(
            f"cannot create {path}: {error.strerror or error}", "choose a folder you can write to"
        ) from error
    try:
        yield staging
        staging.chmod(0o755)
        try:
            staging.rename(path)
        except OSError as error:
            raise exists_already(path) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def ensure_new_file(path: Path) -> None:
    """Refuse a name that is taken."""
    try:
        taken = path.exists()
    except OSError as error:
        raise FileAccessError(
            f"cannot look at {path}: {error.strerror or error}", "choose another name"
        ) from error
    if taken:
        raise exists_already(path)


def ensure_new_folder(path: Path) -> None:
    """Refuse a folder that already holds something, before any long work begins."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise exists_already(path)
        parent = next(p for p in path.absolute().parents if p.exists())
    except OSError as error:
        raise FileAccessError(
            f"cannot look into {path}: {error.strerror or error}", "choose another folder"
        ) from error
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise FileAccessError(f"cannot write into {parent}", "choose a folder you can write to")


def exists_already(path: Path) -> FileAccessError:
    """Return the error for an output that would replace something."""
    return FileAccessError(
        f"{path} exists already and is left as it is", "choose another name, or move it away"
    )
