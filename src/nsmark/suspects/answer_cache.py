"""Answers kept on disk: a measurement that was interrupted goes on, a finished one can be audited.

One file of JSON lines for each endpoint, model and way of asking. The first line says which; each
further one is an answer: the SHA-256 of its text (never the text itself, which may hold the
trigger), its repetition, when it came, and its numbers. Every line carries a checksum of itself.

The rule for damage: what follows the last line break is a line that was being written when the
process died, and is cut off. Anything else that is not as it was written is refused with its line
number: nobody can say what happened to such a file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from nsmark.errors import FileAccessError, InputError
from nsmark.files import sync_folder, write_errors
from nsmark.suspects.answers import Answer

if sys.platform != "win32":
    import fcntl

FORMAT = "nsmark/answers/1"
MAX_CACHE_BYTES = 8 << 30
MAX_LINE_BYTES = 64 << 20

_HINT = "choose a folder you can write to, with enough space"


class AnswerKey(NamedTuple):
    """Which answer: of what text, and the how manieth."""

    text_digest: str
    repetition: int


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class AnswerCache:
    """The answers of one endpoint; without a folder they are kept in memory only.

    Args:
        folder: Where caches are; made if it is not there.
        subject: Endpoint, model and way of asking: answers to anything else are in other files.
        wanted: The answers to load; others in the file are checked, not kept.

    Raises:
        FileAccessError: It cannot be written, or another process is using it.
        InputError: It is damaged.
    """

    def __init__(
        self, folder: Path | None, subject: Mapping[str, Any], wanted: Collection[AnswerKey]
    ) -> None:
        self.answers: dict[AnswerKey, Answer] = {}
        self._handle: int | None = None
        if folder is None:
            return
        header = {"format": FORMAT, **subject}
        name = hashlib.sha256(_canonical(header)).hexdigest()[:32]
        self._path = folder / f"{name}.jsonl"
        self._open()
        try:
            self._load(header, set(wanted))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes have the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def add(self, entries: Sequence[tuple[AnswerKey, Answer]]) -> None:
        """Keep answers; when this returns they are on the disk.

        Raises:
            FileAccessError: The disk or the cache is full.
        """
        self.answers.update(entries)
        if self._handle is not None and entries:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._append(b"".join(_line(_to_record(*entry, now)) for entry in entries))

    def _open(self) -> None:
        with write_errors(self._path, _HINT):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._handle = os.open(self._path, flags, 0o600)
        if sys.platform != "win32":
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.close()
                raise FileAccessError(
                    f"another process is asking the same endpoint with the cache {self._path}",
                    "wait for it, or choose another cache folder",
                ) from error

    def _append(self, content: bytes) -> None:
        """Add whole lines, or nothing: a part would be glued to what comes next."""
        handle = self._handle
        if handle is None:
            return
        if self._size + len(content) > MAX_CACHE_BYTES:
            raise FileAccessError(
                f"the cache {self._path} would exceed {MAX_CACHE_BYTES:,} bytes",
                "choose another cache folder",
            )
        with write_errors(self._path, _HINT):
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, self._size)
                raise
        self._size += len(content)

    def _load(self, header: Mapping[str, Any], wanted: set[AnswerKey]) -> None:
        self._size = 0
        for number, line in enumerate(self._whole_lines(), 1):
            record = self._checked(line, number)
            if number == 1:
                if record != header:
                    raise self._damaged(1, "it belongs to another endpoint or format")
            else:
                key, answer = self._to_answer(record, number)
                if key in wanted:
                    self.answers[key] = answer
            self._size += len(line)
        if self._handle is not None:
            os.ftruncate(self._handle, self._size)  # the line a killed process left half written
        if not self._size:
            self._append(_line(header))
            sync_folder(self._path.parent)

    def _whole_lines(self) -> Iterator[bytes]:
        with write_errors(self._path, _HINT), self._path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_CACHE_BYTES:
                raise InputError(
                    f"the cache {self._path} is larger than {MAX_CACHE_BYTES:,} bytes",
                    "choose another cache folder",
                )
            number = 0
            while line := stream.readline(MAX_LINE_BYTES):
                number += 1
                if line.endswith(b"\n"):
                    yield line
                elif len(line) >= MAX_LINE_BYTES:
                    raise self._damaged(number, "it is too long")

    def _checked(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
            check = record.pop("check")
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
            raise self._damaged(number, "it is no record") from error
        if check != _checksum(record):
            raise self._damaged(number, "its checksum is wrong")
        return dict(record)

    def _to_answer(self, record: Mapping[str, Any], number: int) -> tuple[AnswerKey, Answer]:
        try:
            kind = record["type"]
            if kind not in ("<f4", "<f8"):
                raise ValueError("unknown type of numbers")
            content = base64.b64decode(record["values"], validate=True)
            values = np.frombuffer(content, dtype=kind).astype(np.float64)
            tokens = record.get("tokens")
            # Interned, because thousands of answers name the same tokens.
            names = None if tokens is None else tuple(sys.intern(token) for token in tokens)
            key = AnswerKey(str(record["text"]), int(record["repetition"]))
            if not np.isfinite(values).all() or not values.size:
                raise ValueError("not finite")
            if names is not None and len(names) != len(values):
                raise ValueError("names and values differ in number")
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(number, "it is no answer") from error
        return key, Answer(values, names)

    def _damaged(self, number: int, reason: str) -> InputError:
        return InputError(
            f"line {number} of the cache {self._path} is damaged: {reason}",
            "move the file away, or choose another cache folder; the texts are then asked again",
        )


def _to_record(key: AnswerKey, answer: Answer, now: str) -> dict[str, Any]:
    # Most endpoints send float32; what needs more keeps it.
    narrow = answer.values.astype("<f4")
    kind = "<f4" if np.array_equal(narrow, answer.values) else "<f8"
    values = narrow if kind == "<f4" else answer.values.astype("<f8")
    record: dict[str, Any] = {
        "text": key.text_digest,
        "repetition": key.repetition,
        "time": now,
        "type": kind,
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
    }
    if answer.names is not None:
        record["tokens"] = list(answer.names)
    return record


def _canonical(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(record)).hexdigest()[:16]


def _line(record: Mapping[str, Any]) -> bytes:
    return _canonical({**record, "check": _checksum(record)}) + b"\n"
