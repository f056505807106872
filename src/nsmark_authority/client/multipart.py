"""Uploads as multipart/form-data, read from disk while they are sent."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsmark.errors import FileAccessError
from nsmark_authority.client.http import Body

UploadCallback = Callable[[int, int, str], None]
"""Bytes sent, bytes in all, name of the file."""

_CHUNK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of a form: its content, or where it lies and how large it must be."""

    field: str
    name: str
    """Of letters, digits and ``._-/`` only: it stands in a header."""

    source: bytes | Path
    num_bytes: int


def multipart_body(
    envelope: bytes, files: Sequence[FilePart], on_progress: UploadCallback | None = None
) -> Body:
    """Return a form with a signed statement and the files that belong to it."""
    boundary = secrets.token_hex(24)
    parts = [FilePart("envelope", "envelope.json", envelope, len(envelope)), *files]
    heads = [_head(boundary, part) for part in parts]
    end = f"--{boundary}--\r\n".encode("ascii")
    total = len(end) + sum(
        len(head) + part.num_bytes + 2 for head, part in zip(heads, parts, strict=True)
    )

    def chunks() -> Iterator[bytes]:
        sent = 0
        for head, part in zip(heads, parts, strict=True):
            for octets in itertools.chain((head,), _content(part), (b"\r\n",)):
                yield octets
                sent += len(octets)
                if on_progress is not None:
                    on_progress(sent, total, part.name)
        yield end
        if on_progress is not None:
            on_progress(total, total, "sent")

    return Body(f"multipart/form-data; boundary={boundary}", total, chunks)


def _head(boundary: str, part: FilePart) -> bytes:
    kind = "application/json" if part.field == "envelope" else "application/octet-stream"
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{part.field}"; filename="{part.name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    ).encode("ascii")


def _content(part: FilePart) -> Iterator[bytes]:
    if isinstance(part.source, bytes):
        yield part.source
        return
    left = part.num_bytes
    try:
        with part.source.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
    except OSError as error:
        raise FileAccessError(
            f"cannot read {part.source}: {error.strerror or error}", "check the path"
        ) from error
    if left:
        raise FileAccessError(
            f"{part.source} was changed while it was sent", "try again when nobody writes to it"
        )
