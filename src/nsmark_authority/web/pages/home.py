"""``/``, ``/publications``: who this authority is, and what it published."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from nsmark_authority.transparency import SignedCheckpoint
from nsmark_authority.web.context import Here
from nsmark_authority.web.models import Cursor
from nsmark_authority.web.pages.lists import part_of
from nsmark_authority.web.pages.rendering import page

router = APIRouter(include_in_schema=False)
_NEWEST = 5


@router.get("/")
def home(request: Request, here: Here) -> Response:
    """Say who this is, and how to check it without it."""
    authority = here.authority
    note = authority.log.checkpoint()
    return page(
        authority,
        "home.html",
        public_key=authority.public_key,
        note=note.decode("utf-8"),
        checkpoint=SignedCheckpoint.parse(note).checkpoint,
        settings=authority.settings,
        claims=authority.registry.search_filings(limit=_NEWEST),
        disputes=authority.registry.disputes(limit=_NEWEST),
        url=str(request.base_url).rstrip("/"),
    )


@router.get("/publications")
def publications(here: Here, cursor: Cursor = None) -> Response:
    """List word lists, pools and control sets."""
    find = here.authority.registry.publications
    return page(here.authority, "publications.html", part=part_of(find, "/publications", cursor))
