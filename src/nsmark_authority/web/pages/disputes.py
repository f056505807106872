"""``/disputes``: what is measured now, and what was ruled."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from markupsafe import Markup, escape

from nsmark_authority.errors import NotFoundError
from nsmark_authority.fields import format_time
from nsmark_authority.jobs import utc_now
from nsmark_authority.records import DisputeState, OpenedDispute
from nsmark_authority.statements import Ruling
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.disputes import find_detail
from nsmark_authority.web.documents import peek
from nsmark_authority.web.models import Cursor, DisputeDetail, EntryId, encode_cursor
from nsmark_authority.web.pages import words
from nsmark_authority.web.pages.lists import part_of
from nsmark_authority.web.pages.rendering import page

router = APIRouter(include_in_schema=False)
# By the state of the job; the script on the page says them, too.
_STANDINGS = {
    "queued": "Waiting for a worker.",
    "running": "The suspect is being measured.",
    "done": "The measurement is over.",
    "failed": "The measurement failed; those who run the authority must look at it.",
    "cancelled": "The measurement was cancelled.",
}
_ANSWERABLE = "The suspect is measured when the time to answer is over."


@router.get("/disputes")
def disputes(here: Here, state: DisputeState | Literal[""] = "", cursor: Cursor = None) -> Response:
    """List disputes."""

    def find(before: int | None, limit: int) -> list[OpenedDispute]:
        return here.authority.registry.disputes(state=state or None, before=before, limit=limit)

    part = part_of(find, "/disputes", cursor, state=state)
    parties = {row.fingerprint: owner_name(here, row.fingerprint) for row in part.rows}
    return page(here.authority, "disputes.html", part=part, state=state, parties=parties)


@router.get("/disputes/{entry_id}")
def dispute(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Show a dispute: its progress while it is open, then its ruling."""
    detail = find_detail(here, entry_id)
    found = detail.dispute
    fingerprints = {found.fingerprint, *(defence.fingerprint for defence in detail.defences)}
    ruling = None
    if detail.ruling is not None:
        statement = peek(here.authority.log.entry(detail.ruling.entry_id).entry)
        ruling = statement if isinstance(statement, Ruling) else None
    filing = here.authority.registry.filing_of_key(found.key_id)
    is_answerable = (found.answer_until or "") > format_time(utc_now())
    return page(
        here.authority,
        "dispute.html",
        detail=detail,
        dispute=found,
        filing=filing,
        parties={each: owner_name(here, each) for each in fingerprints},
        ruling=ruling,
        sentence=None if ruling is None else _sentence(ruling, filing.owner),
        standings=_STANDINGS | ({"queued": _ANSWERABLE} if is_answerable else {}),
        is_answerable=is_answerable,
        other_answers=_other_answers(detail),
    )


def owner_name(here: Context, fingerprint: str) -> str:
    """Return the name under which a key is registered."""
    try:
        return here.authority.registry.owner(fingerprint).owner
    except NotFoundError:
        return "somebody who is not registered"


def _other_answers(detail: DisputeDetail) -> str | None:
    """Return the address of the answers that are not shown, if there are any."""
    if detail.num_defences <= len(detail.defences):
        return None
    cursor = encode_cursor(detail.defences[-1].index)
    return f"/v1/disputes/{detail.dispute.entry_id}/defences?cursor={cursor}"


def _sentence(ruling: Ruling, owner: str) -> Markup:
    return escape(words.SENTENCES[ruling.outcome]).format(owner=words.said(owner))
