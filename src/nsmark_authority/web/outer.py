"""What surrounds every request: a log line without secrets, headers, and an answer to any error."""

from __future__ import annotations

import logging
import re
import time
import traceback
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nsmark_authority.web.errors import problem

ACCESS_LOGGER = "nsmark_authority.access"
_access = logging.getLogger(ACCESS_LOGGER)
_errors = logging.getLogger("nsmark_authority.web")
_SECRET = re.compile(r"nsm_[0-9A-Za-z]*|[0-9a-f]{128,}", re.IGNORECASE)
_MAX_PATH_CHARACTERS = 200
_HEADERS = {
    # Pages bring a policy of their own; what the API answers is no page.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_HSTS = "max-age=31536000; includeSubDomains"


class Outer:
    """The outermost layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        scope.setdefault("state", {})
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", _HSTS)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:  # the last line of defence: nobody sees a traceback
            _errors.error("%s", _where(error))
            if status == 0:
                answer = problem(
                    500, "something went wrong in the authority", "tell those who run it"
                )
                await answer(scope, receive, send_with_headers)
        finally:
            milliseconds = 1000 * (time.perf_counter() - begin)
            _access.info("%s %s %.0f ms", _who(scope), f"{_what(scope)} {status}", milliseconds)


def _who(scope: Scope) -> str:
    host = scope["client"][0] if scope.get("client") else "-"
    return f"{host} {scope['state'].get('token_id', '-')}"


def _what(scope: Scope) -> str:
    """Return method and path; queries and headers are not logged at all."""
    path = _SECRET.sub("…", scope["path"])[:_MAX_PATH_CHARACTERS]
    line = f"{scope['method'][:16]} {path}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _where(error: BaseException) -> str:
    """Say what was raised and where; its message may hold what was sent, so it is left out."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)[-6:]
    places = " < ".join(f"{frame.name} ({frame.lineno})" for frame in reversed(frames))
    return f"{type(error).__name__} in {places}"
