"""``/v1/disputes``: claims to models that others serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nsmark.errors import NsmarkError
from nsmark_authority.receipt import Receipt
from nsmark_authority.records import DisputeState, GivenDefence, OpenedDispute
from nsmark_authority.statements import Defence
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.deposits import suspect_bytes, uploaded
from nsmark_authority.web.documents import (
    RECEIPT_SCHEMA,
    answer,
    document_body,
    form_body,
    peek,
    problems,
    read_document,
    receipt_answer,
    receipt_responses,
)
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.limits import caller
from nsmark_authority.web.models import (
    Cursor,
    DefenceView,
    Digest,
    DisputeDetail,
    DisputeView,
    EntryId,
    JobView,
    Limit,
    Page,
    RulingView,
    make_page,
)
from nsmark_authority.web.saying import acknowledge, acknowledge_withdrawal
from nsmark_authority.web.security import Disputer
from nsmark_authority.web.uploads_in import FormLimits, receive_form

router = APIRouter(prefix="/v1/disputes", tags=["disputes"])
_KEEP_ALIVE_SECONDS = 15.0
_EVENTS = answer(
    "Server-sent events `progress` and, last, `done`; data as of the dispute, but its answers are "
    "only counted: `defences` is empty.",
    "text/event-stream",
)
_REPORT = answer("The report of the measurement.", "text/html")
_RULING = answer("Its entry is the ruling.", "application/json", RECEIPT_SCHEMA)
# The report is one page with its pictures and styles in it; it runs nothing and opens nothing.
_REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)


@router.post(
    "",
    status_code=201,
    summary="Open a dispute",
    response_class=Response,
    responses=receipt_responses(200, 201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=form_body("files", many=True, needed=False, texts=("envelope",)),
)
async def open_dispute(request: Request, here: Here, account: Disputer) -> Response:
    """Take a signed dispute and, unless the suspect is an endpoint, its files.

    The suspect is measured when the time to answer is over. A dispute reveals the key's trigger to
    the suspect.
    """
    limits = FormLimits("files", suspect_bytes(here))
    async with receive_form(request, here.spool, limits) as form:
        document = form.text("envelope")

        def say() -> Receipt:
            return here.authority.open_dispute(document, uploaded(form, document), by=account)

        return await acknowledge(here, account, "dispute", document, say, wakes=True)


@router.get("", summary="Disputes", responses=problems(422))
def disputes(
    here: Here,
    state: DisputeState | None = None,
    key: Annotated[Digest | None, Query(description="Id of the key.")] = None,
    fingerprint: Annotated[Digest | None, Query(description="Of the claimant's key.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DisputeView]:
    """List disputes about a key, of a claimant, or in a state."""

    def find(before: int | None, limit: int) -> list[OpenedDispute]:
        return here.authority.registry.disputes(
            key_id=key, fingerprint=fingerprint, state=state, before=before, limit=limit
        )

    return make_page(DisputeView, find, cursor, limit)


@router.get("/{entry_id}", summary="One dispute", responses=problems(404, 422))
def dispute(here: Here, entry_id: Annotated[EntryId, Path()]) -> DisputeDetail:
    """Return a dispute with the progress of its measurement, the first answers and the ruling."""
    return find_detail(here, entry_id)


@router.get(
    "/{entry_id}/events",
    summary="Progress as it happens",
    response_class=StreamingResponse,
    responses=_EVENTS | problems(404, 422),
)
async def events(
    request: Request, here: Here, entry_id: Annotated[EntryId, Path()]
) -> StreamingResponse:
    """Tell how the measurement goes on, until it is over."""
    first = await to_thread.run_sync(_find_standing, here, entry_id)
    who, options = caller(request.scope), here.options
    count = here.streams.enter(who)
    if count > options.streams_per_address or here.streams.total > options.max_streams:
        here.streams.leave(who)
        raise WebError(
            429, "too many streams are open", "ask for the dispute itself", {"Retry-After": "10"}
        )
    return _Stream(here, who, _progress(here, first))


@router.get("/{entry_id}/defences", summary="Answers to a dispute", responses=problems(404, 422))
def defences(
    here: Here, entry_id: Annotated[EntryId, Path()], limit: Limit = 50, cursor: Cursor = None
) -> Page[DefenceView]:
    """List the answers to a dispute, oldest first."""
    registry = here.authority.registry
    registry.dispute(entry_id)

    def find(before: int | None, limit: int) -> list[GivenDefence]:
        # The one list that goes forwards: its next part comes after the last row.
        return registry.defences(entry_id, after=-1 if before is None else before)[:limit]

    return make_page(DefenceView, find, cursor, limit)


@router.post(
    "/{entry_id}/defences",
    status_code=201,
    summary="Answer a dispute",
    response_class=Response,
    responses=receipt_responses(201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=document_body(needs_token=True),
)
async def defend(
    request: Request, here: Here, account: Disputer, entry_id: Annotated[EntryId, Path()]
) -> Response:
    """Take a signed answer to this dispute."""
    document = await read_document(request)

    def act() -> Response:
        with here.audited(account, "defence", entry_id):
            statement = peek(document)
            if not isinstance(statement, Defence) or statement.dispute != entry_id:
                raise WebError(
                    422, "the statement is no answer to this dispute", "send it where it belongs"
                )
            return receipt_answer(here.authority.answer_dispute(document, by=account))

    return await here.write(act)


@router.post(
    "/{entry_id}/withdrawal",
    status_code=201,
    summary="Withdraw a dispute",
    response_class=Response,
    responses=receipt_responses(201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=document_body(needs_token=True),
)
async def withdraw(
    request: Request, here: Here, account: Disputer, entry_id: Annotated[EntryId, Path()]
) -> Response:
    """Take a signed withdrawal of this dispute; its measurement is cancelled."""
    document = await read_document(request)
    find = here.authority.registry.dispute
    return await acknowledge_withdrawal(here, account, document, entry_id, find)


@router.get(
    "/{entry_id}/ruling",
    summary="The receipt of the ruling",
    response_class=Response,
    responses=_RULING | problems(404, 422),
)
def ruling(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Return the ruling, signed and logged, with its proof."""
    found = here.authority.registry.ruling(entry_id)
    return receipt_answer(here.authority.log.receipt(found.entry_id), 200)


@router.get(
    "/{entry_id}/report",
    summary="The report of the measurement",
    response_class=Response,
    responses=_REPORT | problems(404, 422),
)
def report(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Return the report, as one page that runs nothing."""
    content = here.authority.ruling_report(entry_id)
    headers = {"Content-Security-Policy": _REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return Response(content, headers=headers, media_type="text/html; charset=utf-8")


def find_detail(here: Context, entry_id: str) -> DisputeDetail:
    """Return a dispute with everything that belongs to it, but of many answers only the first."""
    standing = _find_standing(here, entry_id)
    defences = [DefenceView.of(each) for each in here.authority.registry.defences(entry_id)]
    # One may have been given since they were counted.
    count = max(standing.num_defences, len(defences))
    return standing.model_copy(update={"defences": defences, "num_defences": count})


def _find_standing(here: Context, entry_id: str) -> DisputeDetail:
    """Return a dispute, its answers only counted: this is asked again and again."""
    authority = here.authority
    found = authority.registry.dispute(entry_id)
    jobs = [job for job in authority.jobs.of_subject(entry_id) if job.kind == "dispute"]
    ruled = None if found.ruling is None else authority.registry.ruling(entry_id)
    return DisputeDetail(
        dispute=DisputeView.of(found),
        job=JobView.of(jobs[-1]) if jobs else None,
        num_defences=authority.registry.count_defences(entry_id),
        defences=[],
        ruling=None if ruled is None else RulingView.of(ruled),
    )


class _Stream(StreamingResponse):
    """Counted out when it ends, also if nobody was there to hear its beginning."""

    def __init__(self, here: Context, who: str, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._here, self._who = here, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._here.streams.leave(self._who)


async def _progress(here: Context, first: DisputeDetail) -> AsyncIterator[str]:
    """Yield an event whenever something changed."""
    options = here.options
    end = time.monotonic() + options.stream_seconds
    shown, spoken = "", time.monotonic()
    detail = first
    while not here.stopping.is_set() and time.monotonic() < end:
        over = detail.dispute.state != "open"
        document = detail.model_dump_json()
        if document != shown or over:
            yield f"event: {'done' if over else 'progress'}\ndata: {document}\n\n"
            shown, spoken = document, time.monotonic()
        elif time.monotonic() - spoken > _KEEP_ALIVE_SECONDS:
            yield ": still here\n\n"
            spoken = time.monotonic()
        if over:
            return
        await asyncio.sleep(options.poll_seconds)
        try:
            detail = await to_thread.run_sync(_find_standing, here, first.dispute.entry_id)
        except NsmarkError:
            return
