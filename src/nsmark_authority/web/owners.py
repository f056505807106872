"""``/v1/challenges``, ``/v1/owners``, ``/v1/tokens``: who may write."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from nsmark_authority.errors import AccessDeniedError, ConflictError
from nsmark_authority.fields import parse_time
from nsmark_authority.jobs import utc_now
from nsmark_authority.web.context import Here
from nsmark_authority.web.documents import document_body, problems, read_document, receipt_object
from nsmark_authority.web.models import (
    PLAIN,
    ChallengeView,
    Cursor,
    Fingerprint,
    Limit,
    NewToken,
    OwnerView,
    Page,
    RegisteredOwner,
    TokenList,
    TokenRequest,
    TokenView,
    make_page,
)
from nsmark_authority.web.security import NEEDS_TOKEN, AnyReader, AnyWriter, count_enrolment

router = APIRouter(prefix="/v1", tags=["owners"])
_DAY_SECONDS = 24 * 3600


@router.post(
    "/challenges",
    status_code=201,
    summary="Ask for a number to be signed in a registration",
    dependencies=[Depends(count_enrolment)],
)
def challenge(here: Here) -> ChallengeView:
    """Give out a number that can be used once, and soon."""
    return ChallengeView.of(here.authority.challenge())


@router.post(
    "/owners",
    status_code=201,
    summary="Register a public key",
    dependencies=[Depends(count_enrolment)],
    responses=problems(403, 409, 413, 415, 422),
    openapi_extra=document_body(needs_token=False),
)
async def register(request: Request, here: Here) -> RegisteredOwner:
    """Take a signed registration; answer with the owner's first token and a receipt.

    An owner who lost his token registers again, with a new challenge.
    """
    document = await read_document(request)
    registered = await here.write(lambda: here.authority.register(document))
    account = registered.token.account
    return RegisteredOwner(
        owner=OwnerView.of(registered.owner),
        token=registered.token.token,
        token_id=account.token_id,
        scopes=list(account.scopes),
        expires=account.expires,
        receipt=receipt_object(registered.receipt),
    )


@router.get("/owners", summary="Who is registered", responses=problems(422))
def owners(
    here: Here,
    name: Annotated[
        str | None, Query(max_length=256, pattern=PLAIN, description="Whole, in any case.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[OwnerView]:
    """List owners."""
    registry = here.authority.registry
    return make_page(OwnerView, lambda **page: registry.owners(name, **page), cursor, limit)


@router.get("/owners/{fingerprint}", summary="One owner", responses=problems(404, 422))
def owner(here: Here, fingerprint: Annotated[Fingerprint, Path()]) -> OwnerView:
    """Return who registered a public key."""
    return OwnerView.of(here.authority.registry.owner(fingerprint))


@router.post(
    "/tokens",
    status_code=201,
    summary="Make a further token",
    responses=problems(401, 403, 409, 413, 415, 422),
    openapi_extra=NEEDS_TOKEN,
)
def new_token(here: Here, account: AnyWriter, wish: TokenRequest) -> NewToken:
    """Make a token for no more than the present one is good for, and for no longer.

    An owner has 32 at most that are neither revoked nor too old.
    """
    if account.fingerprint is None and "admin" not in account.scopes:
        raise AccessDeniedError(
            "the token has no owner who could have a further one", "ask those who run the authority"
        )
    if not set(wish.scopes) <= set(account.scopes):
        raise AccessDeniedError(
            "the token is not good for all of these scopes", "ask for fewer, or register again"
        )
    left = (parse_time(account.expires) - utc_now()) // datetime.timedelta(seconds=1)
    with here.authority.database.write() as connection:
        made = here.authority.accounts.issue_in(
            connection,
            wish.scopes,
            fingerprint=account.fingerprint,
            label=wish.label,
            seconds=max(0, min(wish.days * _DAY_SECONDS, left)),
            makes_room=False,
        )
        who = account.fingerprint or account.token_id
        here.authority.accounts.note_in(connection, who, "token", made.account.token_id, "made")
    return NewToken(**TokenView.of(made.account).model_dump(), token=made.token)


@router.get("/tokens", summary="One's tokens", responses=problems(401), openapi_extra=NEEDS_TOKEN)
def tokens(here: Here, account: AnyReader) -> TokenList:
    """List the tokens of the caller; those who run the authority see all."""
    found = here.authority.accounts.tokens(by=account)
    return TokenList(items=[TokenView.of(each) for each in found])


@router.delete(
    "/tokens",
    summary="Revoke all one's tokens",
    responses=problems(401, 409),
    openapi_extra=NEEDS_TOKEN,
)
def revoke_all(here: Here, account: AnyWriter) -> TokenList:
    """Make all tokens of the caller worthless, also the present one and those made from it.

    For whoever fears that one was stolen: he registers again afterwards, with a new challenge.
    """
    if account.fingerprint is None:
        raise ConflictError("the token has no owner who could have others", "revoke it by its id")
    accounts = here.authority.accounts
    revoked = accounts.revoke_all(account.fingerprint)
    for each in revoked:
        accounts.note(account.fingerprint, "token", each.token_id, "revoked")
    return TokenList(items=[TokenView.of(each) for each in revoked])


@router.delete(
    "/tokens/{token_id}",
    status_code=204,
    summary="Revoke a token",
    responses=problems(401, 404, 422),
    openapi_extra=NEEDS_TOKEN,
)
def revoke(
    here: Here, account: AnyWriter, token_id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
) -> Response:
    """Make one of the caller's tokens worthless from now on."""
    accounts = here.authority.accounts
    accounts.revoke(token_id, by=account)
    accounts.note(account.fingerprint or account.token_id, "token", token_id, "revoked")
    return Response(status_code=204)
