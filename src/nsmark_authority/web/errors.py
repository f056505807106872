"""Errors as ``application/problem+json`` (RFC 9457), whatever went wrong and wherever."""

from __future__ import annotations

import http
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from nsmark.errors import FileAccessError, MissingExtraError, NsmarkError
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError

PROBLEM_TYPE = "application/problem+json"
_RETRY_SECONDS = "30"
_STATUSES: tuple[tuple[type[NsmarkError], int], ...] = (
    (AccessDeniedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    # Ours to mend, not the caller's: a database or a disk that is not there.
    (AuthorityError, 503),
    (FileAccessError, 503),
    (MissingExtraError, 503),
    (NsmarkError, 422),
)
_NAMES = {
    400: "bad-request",
    401: "no-token",
    403: "denied",
    404: "not-found",
    405: "no-such-method",
    408: "too-slow",
    409: "conflict",
    413: "too-large",
    415: "wrong-media-type",
    422: "not-acceptable",
    429: "too-many-requests",
    500: "internal",
    503: "unavailable",
}
_HINTS = {
    404: "GET /v1/openapi.json lists the paths",
    405: "the header Allow lists the methods",
    422: "GET /v1/openapi.json says what is expected",
}


class Problem(BaseModel):
    """What went wrong, and what to do next."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:nsmark:problem:not-found",
                "title": "Not Found",
                "status": 404,
                "detail": "there is no filed key 9f86d081884c7d65…",
                "hint": "search the registry for it",
            }
        }
    )

    type: Annotated[str, Field(description="Names the kind of problem.")]
    title: Annotated[str, Field(description="The status in words.")]
    status: Annotated[int, Field(description="The HTTP status.")]
    detail: Annotated[str, Field(description="What was found.")]
    hint: Annotated[str, Field(description="What the caller can do next.")]


class WebError(HTTPException):
    """A refusal of the web process itself, with a hint."""

    def __init__(
        self, status: int, detail: str, hint: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.hint = hint


def problem(
    status: int, detail: str, hint: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for an error."""
    body = Problem(
        type=f"urn:nsmark:problem:{_NAMES.get(status, 'other')}",
        title=_phrase(status),
        status=status,
        detail=detail,
        hint=hint,
    )
    content = body.model_dump_json().encode("utf-8", "replace")
    return Response(content, status, dict(headers or {}), PROBLEM_TYPE)


def status_of(error: NsmarkError) -> int:
    """Return the HTTP status for one of our errors."""
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def add_error_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Let an application of these routes answer every error in the one form."""

    @app.exception_handler(NsmarkError)
    async def _ours(request: Request, error: NsmarkError) -> Response:
        status = status_of(error)
        headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else {}
        return problem(status, str(error), error.hint, headers)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        status = error.status_code
        hint = error.hint if isinstance(error, WebError) else _HINTS.get(status, "")
        headers = dict(error.headers or {})
        if status == 405 and not isinstance(error, WebError):
            headers["Allow"] = ", ".join(_allowed_methods(routes, request.scope))
        return problem(status, str(error.detail), hint, headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(422, _describe(error.errors()), _HINTS[422])


def _allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods of all routes of a path; Starlette names those of the first alone."""
    methods: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


def _describe(errors: Sequence[Any]) -> str:
    """Say where the first of the errors is, without repeating what was sent: it may be secret."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"])[:100]
    return f"{where}: {' '.join(str(first['msg']).split())[:200]}"


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"
