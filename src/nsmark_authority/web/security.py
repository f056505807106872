"""Who calls: bearer tokens, from the header alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security.utils import get_authorization_scheme_param

from nsmark_authority.errors import AccessDeniedError
from nsmark_authority.records import Account, Scope
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.limits import caller

SECURITY_SCHEME = "token"
SECURITY_SCHEMES = {
    SECURITY_SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that an owner got when registering, or one made from it.",
    }
}
NEEDS_TOKEN: dict[str, Any] = {"security": [{SECURITY_SCHEME: []}]}
"""For ``openapi_extra``."""


def require(scope: Scope | None = None, *, writes: bool = True) -> Callable[..., Account]:
    """Return a dependency that lets in those whose token is good for a scope.

    Args:
        scope: What for; None for any.
        writes: Whether the call counts as one of the owner's writes.
    """

    def _authenticated(request: Request, here: Here) -> Account:
        account = _authenticate(request, here)
        request.state.token_id = account.token_id
        request.state.writer = writer = account.fingerprint or account.token_id
        if scope is not None and scope not in account.scopes:
            here.authority.accounts.note(writer, "access", _route(request), "denied")
            raise WebError(
                403, f"the token is not good for {scope!r}", "ask with one that has this scope"
            )
        if writes:
            here.rates.count("write", writer)
        return account

    return _authenticated


def _authenticate(request: Request, here: Context) -> Account:
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    if scheme.lower() != "bearer" or not token:
        raise _no_token("this needs a token, in the header Authorization: Bearer …")
    try:
        return here.authority.accounts.authenticate(token)
    except AccessDeniedError as error:
        # Only now: those with a right token behind the same address are not to suffer for it.
        who = caller(request.scope)
        here.rates.count("refusal", who)
        here.authority.accounts.note(who, "access", _route(request), "no valid token")
        raise _no_token(str(error)) from error


def _route(request: Request) -> str:
    """Return what was asked for, without what the caller wrote: it may be a secret."""
    return f"{request.method} {getattr(request.scope.get('route'), 'path', '')}"


def _no_token(detail: str) -> WebError:
    return WebError(
        401,
        detail,
        "get one: `nsmark client register`, or ask the authority",
        {"WWW-Authenticate": "Bearer"},
    )


async def count_enrolment(request: Request, here: Here) -> None:
    """Count a call that needs no token but leaves something behind."""
    here.rates.count("enrolment", caller(request.scope))


async def count_check(request: Request, here: Here) -> None:
    """Count a receipt that is to be checked, before anything of it is read."""
    here.rates.count("check", caller(request.scope))


Filer = Annotated[Account, Depends(require("file"))]
Disputer = Annotated[Account, Depends(require("dispute"))]
Admin = Annotated[Account, Depends(require("admin"))]
AdminReader = Annotated[Account, Depends(require("admin", writes=False))]
AnyWriter = Annotated[Account, Depends(require())]
AnyReader = Annotated[Account, Depends(require(writes=False))]
