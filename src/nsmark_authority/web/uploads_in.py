"""Multipart bodies, read as they come: the signed statement into memory, files into the spool."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from anyio import to_thread
from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect

from nsmark_authority.manifest import MAX_FILES
from nsmark_authority.web.bodies import allow_bytes
from nsmark_authority.web.documents import MAX_SIGNED_BYTES
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.limits import network
from nsmark_authority.web.spool import Spool, SpooledFile, Uploader

_MAX_HEADER_BYTES = 4096
_MAX_HEADERS = 8
_MAX_NAME_CHARACTERS = 300
_FRAME_BYTES = 1 << 16
_PER_FILE_BYTES = 1024
"""Boundary and headers of one part."""

_BATCH_BYTES = 1 << 18
_HINT = "send multipart/form-data as GET /v1/openapi.json says, or use `nsmark client`"


@dataclass(frozen=True, slots=True)
class FormLimits:
    """What a form may hold."""

    files_field: str
    """Name of the parts that are files."""

    max_bytes: int
    """Of all files together."""

    max_files: int = MAX_FILES
    text_fields: tuple[str, ...] = ("envelope",)
    max_text_bytes: int = MAX_SIGNED_BYTES


@dataclass(slots=True)
class Form:
    """What was received."""

    texts: dict[str, bytes] = field(default_factory=dict)
    files: list[tuple[str, SpooledFile]] = field(default_factory=list)

    def text(self, name: str) -> bytes:
        """Return a part that must be there.

        Raises:
            WebError: It is not (422).
        """
        if name not in self.texts:
            raise _malformed(f"the form has no part {name!r}")
        return self.texts[name]

    def one_file(self) -> SpooledFile:
        """Return the only file.

        Raises:
            WebError: There is none, or more than one (422).
        """
        if len(self.files) != 1:
            raise _malformed(f"the form has {len(self.files)} files, one was expected")
        return self.files[0][1]


@contextlib.asynccontextmanager
async def receive_form(request: Request, spool: Spool, limits: FormLimits) -> AsyncIterator[Form]:
    """Read a form; its files are gone when the block is left.

    Raises:
        WebError: It is too large (413), not multipart (415) or malformed (422); or there is no
            room for it now (429, 503).
    """
    boundary = _boundary(request.headers.get("content-type", ""))
    frame = _FRAME_BYTES + limits.max_files * _PER_FILE_BYTES
    texts = len(limits.text_fields) * limits.max_text_bytes
    allow_bytes(request, limits.max_bytes + texts + frame)
    address = network(request.scope)
    who = Uploader(getattr(request.state, "writer", address), address)
    reader = _FormReader(boundary, spool, who, limits)
    try:
        await _read(request, reader)
        yield reader.form
    finally:
        for _, file in reader.form.files:
            file.close()


async def _read(request: Request, reader: _FormReader) -> None:
    batch: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            batch.append(chunk)
            size += len(chunk)
            if size >= _BATCH_BYTES:
                await to_thread.run_sync(reader.feed, b"".join(batch))
                batch, size = [], 0
        await to_thread.run_sync(reader.finish, b"".join(batch))
    except ClientDisconnect as error:
        raise WebError(400, "the connection was closed before the end", "send it again") from error
    except FormParserError as error:
        raise _malformed("the form is malformed") from error


class _FormReader:
    """Callbacks of the parser; what they raise ends the request."""

    def __init__(self, boundary: bytes, spool: Spool, who: Uploader, limits: FormLimits) -> None:
        self.form = Form()
        self._spool = spool
        self._who = who
        self._limits = limits
        self._left = limits.max_bytes
        self._is_over = False
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""
        self._text: str | None = None
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._take_data,
                "on_header_field": self._take_header_name,
                "on_header_value": self._take_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_end": self._end,
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=_MAX_HEADER_BYTES,
        )

    def feed(self, content: bytes) -> None:
        self._parser.write(content)

    def finish(self, content: bytes) -> None:
        self._parser.write(content)
        self._parser.finalize()
        if not self._is_over:
            raise _malformed("the form is cut off")
        for _, file in self.form.files:
            file.rewind()

    def _begin_part(self) -> None:
        self._header_name = self._header_value = self._disposition = b""

    def _take_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = _decode(options.get(b"name", b""))
        if kind != b"form-data" or not name:
            raise _malformed("a part of the form has no name")
        if name in self._limits.text_fields:
            if name in self.form.texts:
                raise _malformed(f"the form has two parts {name!r}")
            self.form.texts[name] = b""
            self._text = name
        elif name == self._limits.files_field:
            if len(self.form.files) == self._limits.max_files:
                raise _too_large(f"the form has more than {self._limits.max_files} files")
            self._text = None
            file_name = _decode(options.get(b"filename", b""))
            self.form.files.append((file_name, self._spool.open(self._who)))
        else:
            raise _malformed("the form has a part of an unknown name")

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self._left -= end - start
            if self._left < 0:
                raise _too_large(f"the files are larger than {self._limits.max_bytes:,} bytes")
            self.form.files[-1][1].write(data[start:end])
            return
        self.form.texts[self._text] += data[start:end]
        if len(self.form.texts[self._text]) > self._limits.max_text_bytes:
            raise _too_large(f"the part is larger than {self._limits.max_text_bytes:,} bytes")

    def _end(self) -> None:
        self._is_over = True


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 70:
        raise WebError(415, "the body must be multipart/form-data with a boundary", _HINT)
    return boundary


def _decode(name: bytes) -> str:
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed("a name in the form is not UTF-8") from error
    if len(text) > _MAX_NAME_CHARACTERS:
        raise _malformed("a name in the form is too long")
    return text


def _malformed(detail: str) -> WebError:
    return WebError(422, detail, _HINT)


def _too_large(detail: str) -> WebError:
    return WebError(413, detail, "GET /v1/authority says what is taken")
