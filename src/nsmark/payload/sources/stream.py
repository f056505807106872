"""Bytes from outside: bounded while they are read, decoded line by line.

The bound is on what comes out of the decompressor, byte by byte as it comes, so a small archive
that unpacks to terabytes costs no more memory than an honest file.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from nsmark.errors import FileAccessError, TextPoolError

MAX_ROWS = 100_000_000
"""Rows cost time and a list entry even where they cost no bytes (a column of nulls)."""

_CHUNK = 1 << 16


class Budget:
    """How much may still be read from one source, over all its files."""

    def __init__(self, source: str, max_bytes: int, max_rows: int = MAX_ROWS) -> None:
        self.source = source
        self.max_bytes = max_bytes
        self.max_rows = max_rows
        self._bytes = 0
        self._rows = 0

    def take(self, num_bytes: int) -> None:
        """Count bytes; raise ``TextPoolError`` when there are too many."""
        self._bytes += num_bytes
        if self._bytes > self.max_bytes:
            raise self.exceeded(f"{self.max_bytes:,} bytes")

    def take_row(self) -> None:
        """Count a row; raise ``TextPoolError`` when there are too many."""
        self._rows += 1
        if self._rows > self.max_rows:
            raise self.exceeded(f"{self.max_rows:,} rows")

    def exceeded(self, limit: str) -> TextPoolError:
        """Return the error for a source that is too large."""
        return TextPoolError(
            f"{self.source} is larger than {limit}, unpacked", "give a part of these texts"
        )


class _Counted(io.RawIOBase):
    """A stream whose every byte is taken from a budget."""

    def __init__(self, inner: io.BufferedIOBase, budget: Budget) -> None:
        self._inner = inner
        self._budget = budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._inner.read(min(len(buffer), _CHUNK))
        self._budget.take(len(chunk))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def unreadable(path: Path, error: Exception) -> FileAccessError:
    """Return the error for a path that cannot be opened or read."""
    reason = getattr(error, "strerror", None) or error
    hint = "check the path"
    if isinstance(error, IsADirectoryError):
        hint = "for a folder of data files, write dataset: before its path, as in dataset:./folder"
    return FileAccessError(f"cannot read text file {path}: {reason}", hint)


@contextlib.contextmanager
def open_bounded(path: Path, budget: Budget) -> Iterator[io.BufferedReader]:
    """Open a file for reading, unpacked if its name ends in ``.gz``.

    Raises:
        FileAccessError: It cannot be read.
        TextPoolError: It is no gzip file, ends early, or holds more than the budget allows.
    """
    try:
        handle = path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise unreadable(path, error) from error
    try:
        with handle:
            packed = path.suffix.lower() == ".gz"
            inner = gzip.GzipFile(fileobj=handle, mode="rb") if packed else handle
            yield io.BufferedReader(_Counted(inner, budget), _CHUNK)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TextPoolError(
            f"{path} is not a whole gzip file: {error}", "pack it again, or fetch it again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def decoded_lines(
    stream: io.BufferedReader, path: Path, max_line_bytes: int = -1
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines with their numbers (from 1), each with its ``\n``.

    UTF-8, strict; a leading byte-order mark is dropped; split on line feeds only (no byte of a
    longer UTF-8 sequence is a line feed, so splitting before decoding is safe).

    Raises:
        TextPoolError: Not UTF-8, or a line is longer than ``max_line_bytes``.
    """
    limit = max_line_bytes + 1 if max_line_bytes >= 0 else -1
    start, number = 0, 0
    while raw := stream.readline(limit):
        number += 1
        if 0 <= max_line_bytes < len(raw):
            raise too_long(path, f"line {number}", max_line_bytes)
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextPoolError(
                f"{path} is not UTF-8 text: byte {start + error.start} (line {number}) cannot be "
                "decoded",
                "convert the file to UTF-8",
            ) from error
        start += len(raw)
        yield number, line.removeprefix("\ufeff") if number == 1 else line


def too_long(path: Path, where: str, max_bytes: int) -> TextPoolError:
    """Return the error for a line or row that would cost too much to parse."""
    return TextPoolError(
        f"{path}, {where}: longer than {max_bytes:,} bytes", "shorten it, or leave it out"
    )
