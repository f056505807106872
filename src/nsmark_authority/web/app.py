"""The application: all paths, in their layers of protection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from nsmark import __version__
from nsmark_authority.queueing import WorkQueue
from nsmark_authority.service import Authority
from nsmark_authority.web import (
    about,
    deposits,
    disputes,
    filings,
    jobs,
    log,
    owners,
    publications,
    receipts,
)
from nsmark_authority.web.bodies import Bodies
from nsmark_authority.web.checkers import Checkers
from nsmark_authority.web.context import Context
from nsmark_authority.web.errors import PROBLEM_TYPE, Problem, add_error_handlers
from nsmark_authority.web.limits import RateLimits, Turnstile
from nsmark_authority.web.models import ReceiptObject
from nsmark_authority.web.options import WebOptions
from nsmark_authority.web.outer import Outer
from nsmark_authority.web.pages import routes
from nsmark_authority.web.pages.problem_pages import ProblemPages
from nsmark_authority.web.security import SECURITY_SCHEMES
from nsmark_authority.web.spool import Spool

OPENAPI_PATH = "/v1/openapi.json"
SPOOL_FOLDER = "incoming"
MAX_READERS = 8
"""Threads that read; more of them only wait for each other."""

# Those first that are asked most: routes are tried one after the other.
ROUTERS = (
    receipts.router,
    filings.router,
    log.router,
    disputes.router,
    about.router,
    owners.router,
    deposits.router,
    publications.router,
    jobs.router,
    *routes.ROUTERS,
)
_DESCRIPTION = (
    "Watermark keys are filed, dated and logged here; disputes about models are measured and ruled."
    " Errors are `application/problem+json`. Lists are given in parts: pass `next` as `cursor`."
)
_ANY_PROBLEM = {
    "description": "Any other error, such as 429 (too many requests; see Retry-After).",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def create_app(
    authority: Authority,
    options: WebOptions | None = None,
    *,
    queue: WorkQueue | None = None,
    has_worker: bool = False,
) -> FastAPI:
    """Return the application; the caller closes the authority afterwards.

    Args:
        authority: Whose web face it is.
        options: Limits on callers.
        queue: Wakes workers.
        has_worker: Whether a worker was started beside it.
    """
    options = options or WebOptions()
    rates = RateLimits(options)
    context = Context(
        authority=authority,
        options=options,
        rates=rates,
        checkers=Checkers(options.check_processes),
        spool=Spool(authority.settings.folder / SPOOL_FOLDER, options.max_spooled_bytes),
        queue=queue,
        has_worker=has_worker,
    )
    app = FastAPI(
        title="nsmark certification authority",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=OPENAPI_PATH,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.context = context
    for router in ROUTERS:
        app.include_router(router)
    add_error_handlers(app, [route for router in ROUTERS for route in router.routes])
    # The last one added is the outermost.
    app.add_middleware(Bodies, options=options)
    app.add_middleware(Turnstile, rates=rates, options=options)
    app.add_middleware(Outer)
    app.add_middleware(ProblemPages, authority=authority)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = MAX_READERS
    try:
        yield
    finally:
        app.state.context.checkers.close()


def _describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for model in (Problem, ReceiptObject):
            schemas[model.__name__] = model.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
        components["securitySchemes"] = SECURITY_SCHEMES
        for methods in document["paths"].values():
            for operation in methods.values():
                answers = operation["responses"]
                if "application/json" in answers.get("422", {}).get("content", {}):
                    answers.pop("422")  # FastAPI's own form of validation errors
                answers.setdefault("default", _ANY_PROBLEM)
        app.openapi_schema = document
    return app.openapi_schema
