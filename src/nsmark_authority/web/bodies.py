"""Bodies of requests: never more than is allowed, never slower, whatever their headers say."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nsmark_authority.web.errors import WebError
from nsmark_authority.web.options import WebOptions

_MAX_LENGTH_DIGITS = 15
_DRAINED_BYTES = 4 << 20
_DRAINED_SECONDS = 1.0
_LENGTH = re.compile(rf"[0-9]{{1,{_MAX_LENGTH_DIGITS}}}")


class Bodies:
    """Hands bodies on piece by piece, within their limits.

    A body may be of ``max_document_bytes``; an endpoint that takes more says so by
    :func:`allow_bytes` before it reads.
    """

    def __init__(self, app: ASGIApp, options: WebOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._options)
        scope["state"]["body"] = body

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.is_over:
                # Whoever is still sending must hear the answer before the connection is closed.
                await body.drain()
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, body.receive, send_and_close)


def allow_bytes(request: Request, num_bytes: int) -> None:
    """Let the body of this request be larger than a document.

    Raises:
        WebError: Its announced length is larger still (413).
    """
    body: _Body = request.state.body
    body.allow(num_bytes)


class _Body:
    """One request's body on its way in."""

    def __init__(self, scope: Scope, receive: Receive, options: WebOptions) -> None:
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._options = options
        self._announced = headers.get(b"content-length", b"").decode("latin-1").strip()
        self._max_bytes = options.max_document_bytes
        self._received = 0
        self._begin: float | None = None
        self._waited, self._came = 0.0, 0
        has_length = self._announced not in ("", "0")
        self.is_over = not has_length and b"transfer-encoding" not in headers

    def allow(self, num_bytes: int) -> None:
        self._max_bytes = num_bytes
        self._check_announced()

    async def receive(self) -> Message:
        if self.is_over:
            return await self._receive()
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
            self._check_announced()
        left = self._begin + self._options.body_seconds - now
        try:
            async with asyncio.timeout(max(0.0, min(self._options.idle_seconds, left))):
                message = await self._receive()
        except TimeoutError as error:
            raise self._too_slow() from error
        if message["type"] != "http.request":
            self.is_over = True
            return message
        num_bytes = len(message.get("body", b""))
        self._received += num_bytes
        self.is_over = not message.get("more_body", False)
        if self._received > self._max_bytes:
            raise self._too_large()
        self._require_rate(time.monotonic() - now, num_bytes)
        return message

    def _require_rate(self, seconds: float, num_bytes: int) -> None:
        """Give up a body that came too slowly of late, however fast it was before.

        Only the time in which we waited for it counts: a busy disk is not the sender's fault.
        """
        self._waited += seconds
        self._came += num_bytes
        if self.is_over or self._waited < self._options.rate_seconds:
            return
        if self._came < self._waited * self._options.min_bytes_per_second:
            raise self._too_slow()
        self._waited, self._came = 0.0, 0

    async def drain(self) -> None:
        """Throw away what is still coming, for a while."""
        left = _DRAINED_BYTES
        try:
            async with asyncio.timeout(_DRAINED_SECONDS):
                while left > 0 and not self.is_over:
                    message: Any = await self._receive()
                    left -= len(message.get("body", b""))
                    self.is_over = not message.get("more_body", False)
        except TimeoutError:
            return

    def _check_announced(self) -> None:
        if not self._announced:
            return
        if not _LENGTH.fullmatch(self._announced) or int(self._announced) > self._max_bytes:
            raise self._too_large()

    def _too_large(self) -> WebError:
        return WebError(
            413,
            f"the body is larger than {self._max_bytes:,} bytes",
            "GET /v1/authority says what is taken",
        )

    def _too_slow(self) -> WebError:
        return WebError(408, "the body came too slowly", "send it again over a better line")
