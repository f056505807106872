"""``/v1/log``: the log, for anybody to check."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from nsmark_authority.errors import NotFoundError, TransparencyError
from nsmark_authority.records import LogEntry
from nsmark_authority.transparency.strict_base64 import encode_base64
from nsmark_authority.web.context import Here
from nsmark_authority.web.documents import answer, problems
from nsmark_authority.web.models import (
    MAX_INDEX,
    MAX_PAGE,
    ConsistencyProof,
    EntryId,
    InclusionProof,
    LogEntryView,
    LogPage,
)

router = APIRouter(prefix="/v1/log", tags=["log"])
Size = Annotated[int, Query(ge=1, le=MAX_INDEX, description="Number of entries.")]


@router.get(
    "/checkpoint",
    summary="The newest signed checkpoint",
    response_class=Response,
    responses=answer("A signed note (C2SP).", "text/plain") | problems(404, 422),
)
def checkpoint(
    here: Here,
    size: Annotated[
        int | None, Query(ge=0, le=MAX_INDEX, description="Over so many entries; by default all.")
    ] = None,
) -> Response:
    """Return what the authority signed about the log."""
    return Response(here.authority.log.checkpoint(size), media_type="text/plain")


@router.get("/entries", summary="Entries in their order", responses=problems(422))
def entries(
    here: Here,
    start: Annotated[int, Query(ge=0, le=MAX_INDEX)] = 0,
    count: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> LogPage:
    """List entries from an index on."""
    found = here.authority.log.entries(start, count + 1)
    more = len(found) > count
    return LogPage(
        items=[_view(entry) for entry in found[:count]],
        next=found[count].index if more else None,
    )


@router.get("/entries/{index}", summary="One entry", responses=problems(404, 422))
def entry(here: Here, index: Annotated[int, Path(ge=0, le=MAX_INDEX)]) -> LogEntryView:
    """Return an entry by its index."""
    return _view(here.authority.log.entry(index))


@router.get("/inclusion", summary="Proof that an entry is in the log", responses=problems(404, 422))
def inclusion(
    here: Here, entry_id: Annotated[EntryId, Query()], size: Size | None = None
) -> InclusionProof:
    """Return the audit path of an entry up to the tree of a size, by default the whole log."""
    log = here.authority.log
    found = log.entry(entry_id)
    newest = log.size()
    wanted = newest if size is None else size
    if wanted > newest:
        raise NotFoundError(f"the log has fewer than {wanted} entries", "ask for its checkpoint")
    proof = log.inclusion(found.index, wanted)
    return InclusionProof(
        entry_id=entry_id, index=found.index, size=wanted, proof=[*map(encode_base64, proof)]
    )


@router.get("/consistency", summary="Proof that the log only grew", responses=problems(404, 422))
def consistency(here: Here, old: Size, new: Size) -> ConsistencyProof:
    """Return the proof between the trees of two sizes."""
    if old > new:
        raise TransparencyError("the old size is larger than the new one", "exchange them")
    if new > here.authority.log.size():
        raise NotFoundError(f"the log has fewer than {new} entries", "ask for its checkpoint")
    proof = here.authority.log.consistency(old, new)
    return ConsistencyProof(old=old, new=new, proof=[*map(encode_base64, proof)])


def _view(found: LogEntry) -> LogEntryView:
    return LogEntryView(
        index=found.index,
        entry_id=found.entry_id,
        kind=found.kind,
        time=found.time,
        entry=encode_base64(found.entry),
    )
