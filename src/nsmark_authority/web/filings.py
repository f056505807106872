"""``/v1/filings``, ``/v1/keys``: sealed keys."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from nsmark_authority.records import FiledKey, FilingState
from nsmark_authority.statements import Admission
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.documents import (
    document_body,
    form_body,
    peek,
    problems,
    read_document,
    receipt_responses,
)
from nsmark_authority.web.models import (
    PLAIN,
    Cursor,
    Decision,
    Digest,
    EntryId,
    FilingDetail,
    FilingView,
    JobView,
    KeyId,
    Limit,
    Page,
    make_page,
)
from nsmark_authority.web.saying import acknowledge, acknowledge_withdrawal
from nsmark_authority.web.security import Filer
from nsmark_authority.web.uploads_in import FormLimits, receive_form

router = APIRouter(prefix="/v1", tags=["filings"])
_BEGINNING = "^[0-9a-f]{1,64}$"


@router.post(
    "/filings",
    status_code=201,
    summary="File a sealed key",
    response_class=Response,
    responses=receipt_responses(200, 201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=form_body("content", many=False, needed=True, texts=("envelope",)),
)
async def file_key(request: Request, here: Here, account: Filer) -> Response:
    """Take a signed filing and its key file; answer with the receipt.

    Admission is decided later; see the filing. The same filing again gets the same receipt.
    """
    limits = FormLimits("content", here.authority.settings.max_key_bytes, max_files=1)
    async with receive_form(request, here.spool, limits) as form:
        document, content = form.text("envelope"), form.one_file()
        say = partial(here.authority.file_key, document, content, by=account)
        return await acknowledge(here, account, "filing", document, say, wakes=True)


@router.post(
    "/filings/{entry_id}/withdrawal",
    status_code=201,
    summary="Withdraw a filing",
    response_class=Response,
    responses=receipt_responses(201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=document_body(needs_token=True),
)
async def withdraw_filing(
    request: Request, here: Here, account: Filer, entry_id: Annotated[EntryId, Path()]
) -> Response:
    """Take a signed withdrawal of this filing."""
    document = await read_document(request)
    find = here.authority.registry.filing
    return await acknowledge_withdrawal(here, account, document, entry_id, find)


@router.get("/filings", summary="Search the registry", responses=problems(422))
def filings(
    here: Here,
    text: Annotated[
        str, Query(max_length=256, pattern=PLAIN, description="Words of the claim.")
    ] = "",
    owner: Annotated[
        str | None, Query(max_length=256, pattern=PLAIN, description="Whole name.")
    ] = None,
    key: Annotated[
        str | None, Query(pattern=_BEGINNING, description="Id of the key, or its beginning.")
    ] = None,
    fingerprint: Annotated[
        str | None, Query(pattern=_BEGINNING, description="Of the owner's key, or its beginning.")
    ] = None,
    model: Annotated[Digest | None, Query(description="Digest of the marked model.")] = None,
    state: FilingState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[FilingView]:
    """List filings that fit everything given."""

    def find(before: int | None, limit: int) -> list[FiledKey]:
        return here.authority.registry.search_filings(
            text,
            owner=owner,
            key_id=key,
            fingerprint=fingerprint,
            model_digest=model,
            state=state,
            before=before,
            limit=limit,
        )

    return make_page(FilingView, find, cursor, limit)


@router.get("/filings/{entry_id}", summary="One filing", responses=problems(404, 422))
def filing(here: Here, entry_id: Annotated[EntryId, Path()]) -> FilingDetail:
    """Return a filing by its entry."""
    return _detail(here, here.authority.registry.filing(entry_id))


@router.get("/keys/{key_id}", summary="The filing of a key", responses=problems(404, 422))
def key(here: Here, key_id: Annotated[KeyId, Path()]) -> FilingDetail:
    """Return the filing of a key."""
    return _detail(here, here.authority.registry.filing_of_key(key_id))


def _detail(here: Context, found: FiledKey) -> FilingDetail:
    decision = None
    if found.admission is not None:
        statement = peek(here.authority.log.entry(found.admission).entry)
        if isinstance(statement, Admission):
            decision = Decision(
                entry_id=found.admission,
                admitted=statement.admitted,
                reasons=list(statement.reasons),
                control_set=statement.control_set,
            )
    jobs = here.authority.jobs.of_subject(found.entry_id)
    return FilingDetail(
        **FilingView.of(found).model_dump(),
        decision=decision,
        job=JobView.of(jobs[-1]) if jobs else None,
    )
