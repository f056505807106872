"""``/log``, ``/entries``: the log, entry by entry, with the proof of each."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import RedirectResponse

from nsmark_authority.statements import OwnerStatement
from nsmark_authority.transparency import SignedCheckpoint, check_inclusion, hash_leaf
from nsmark_authority.web.context import Here
from nsmark_authority.web.documents import peek
from nsmark_authority.web.models import MAX_INDEX, EntryId
from nsmark_authority.web.pages.lists import PAGE_ROWS
from nsmark_authority.web.pages.proof_steps import proof_steps
from nsmark_authority.web.pages.rendering import page
from nsmark_authority.web.pages.statement_rows import statement_rows

router = APIRouter(include_in_schema=False)
_PLACES = {"filing": "/claims/", "dispute": "/disputes/"}
_MAX_SHOWN = 20_000


@router.get("/log")
def log(here: Here, start: Annotated[int | None, Query(ge=0, le=MAX_INDEX)] = None) -> Response:
    """List entries in their order; by default the last ones."""
    size = here.authority.log.size()
    begin = max(0, size - PAGE_ROWS) if start is None else start
    entries = here.authority.log.entries(begin, PAGE_ROWS)
    end = begin + PAGE_ROWS
    return page(
        here.authority,
        "log.html",
        entries=entries,
        begin=begin,
        size=size,
        note=here.authority.log.checkpoint().decode("utf-8"),
        earlier=max(0, min(begin, size) - PAGE_ROWS) if begin > 0 else None,
        later=end if end < size else None,
    )


@router.get("/log/{index}")
def entry(here: Here, index: Annotated[int, Path(ge=0, le=MAX_INDEX)]) -> Response:
    """Show an entry: what it says, its envelope, and the proof that it is in the log."""
    log = here.authority.log
    found = log.entry(index)
    receipt = log.receipt(index)
    checkpoint = SignedCheckpoint.parse(receipt.checkpoint).checkpoint
    leaf = hash_leaf(found.entry)
    check_inclusion(
        receipt.proof, leaf=leaf, index=index, size=checkpoint.size, root=checkpoint.root
    )
    statement = peek(found.entry)
    signer = statement.signer() if isinstance(statement, OwnerStatement) else None
    envelope = json.dumps(json.loads(found.entry), ensure_ascii=True, indent=2)
    return page(
        here.authority,
        "entry.html",
        entry=found,
        rows=statement_rows(statement),
        signer=None if signer is None else signer.fingerprint,
        envelope=envelope[:_MAX_SHOWN],
        is_cut=len(envelope) > _MAX_SHOWN,
        place=_PLACES.get(found.kind),
        checkpoint=checkpoint,
        note=receipt.checkpoint.decode("utf-8"),
        leaf=leaf.hex(),
        steps=proof_steps(receipt.proof, leaf=leaf, index=index, size=checkpoint.size),
    )


@router.get("/entries/{entry_id}")
def entry_by_id(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Lead to the page of whatever an entry is."""
    found = here.authority.log.entry(entry_id)
    place = _PLACES.get(found.kind)
    return RedirectResponse(f"/log/{found.index}" if place is None else f"{place}{entry_id}", 303)
