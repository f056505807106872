"""Errors as pages, for those who asked for a page."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nsmark_authority.service import Authority
from nsmark_authority.web.errors import PROBLEM_TYPE
from nsmark_authority.web.pages.rendering import page

_API = "/v1/"
_TITLES = {
    404: "There is no such page",
    405: "This page is not used that way",
    413: "That is too large",
    422: "This could not be understood",
    429: "Too many requests",
    500: "Something went wrong",
    503: "The authority is not available",
}
_HINTS = {404: "Search the claims, or begin at the first page.", 422: "Go back and try again."}


class ProblemPages:
    """Turns problems into pages: only outside of the API, and only where HTML is asked for."""

    def __init__(self, app: ASGIApp, authority: Authority) -> None:
        self._app = app
        self._authority = authority

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not _wants_page(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                media_type = Headers(raw=message["headers"]).get("content-type")
                if media_type != PROBLEM_TYPE:
                    await send(message)
                    return
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await self._answer(start, body, scope, receive, send)

        await self._app(scope, receive, send_page)

    async def _answer(
        self, start: Message, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        problem: dict[str, Any] = json.loads(body)
        status = int(problem["status"])
        answer = page(
            self._authority,
            "problem.html",
            status,
            number=status,
            title=_TITLES.get(status, problem["title"]),
            # Starlette has no more to say than the status in words, which the title does better.
            detail="" if problem["detail"] == problem["title"] else problem["detail"],
            hint=_HINTS.get(status, problem["hint"]),
        )
        # The page's own policy, type and length; else what was to be sent, such as Retry-After.
        for name, value in Headers(raw=start["headers"]).items():
            answer.headers.setdefault(name, value)
        await answer(scope, receive, send)


def _wants_page(scope: Scope) -> bool:
    return not scope["path"].startswith(_API) and "text/html" in Headers(scope=scope).get(
        "accept", ""
    )
