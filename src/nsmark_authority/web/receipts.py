"""``/v1/receipts``: proofs, made anew and checked."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from cryptography import x509
from fastapi import APIRouter, Depends, Path, Request, Response

from nsmark_authority.errors import NotFoundError
from nsmark_authority.service import Authority
from nsmark_authority.stamping import roots_pem
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.documents import (
    RECEIPT_SCHEMA,
    answer,
    document_body,
    problems,
    read_receipt,
    receipt_answer,
)
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.models import EntryId, ReceiptCheck
from nsmark_authority.web.security import count_check

router = APIRouter(prefix="/v1/receipts", tags=["receipts"])
# What is no receipt is answered like one that proves nothing.
_ANYTHING: dict[str, Any] = {"description": "A receipt (ReceiptObject), as it was given out."}
_FRESH = answer("The receipt, up to the newest checkpoint.", "application/json", RECEIPT_SCHEMA)


@router.get("/check", include_in_schema=False)
def check_is_posted() -> None:
    """Keep the next path from taking ``check`` for an entry."""
    raise WebError(405, "a receipt is posted here", "use POST", {"Allow": "POST"})


@router.get(
    "/{entry_id}",
    summary="A fresh receipt",
    response_class=Response,
    responses=_FRESH | problems(404, 422),
)
def receipt(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Return the receipt of any entry, for the newest checkpoint."""
    return receipt_answer(here.authority.log.receipt(entry_id), 200)


@router.post(
    "/check",
    summary="Check a receipt",
    dependencies=[Depends(count_check)],
    responses=problems(400, 413, 415),
    openapi_extra=document_body(_ANYTHING, needs_token=False),
)
async def check(request: Request, here: Here) -> ReceiptCheck:
    """Check a receipt with this authority's own key and roots.

    Those who do not trust the authority check it themselves: `nsmark client check-receipt`.
    """
    return await check_content(here, await read_receipt(request))


async def check_content(here: Context, content: bytes) -> ReceiptCheck:
    """Return what a receipt proves, by this authority's key and roots, and what its log says."""
    authority = here.authority
    public_key = authority.public_key.to_pem()
    checked = await here.checkers.check(content, public_key, roots_pem(authority.roots))
    if not checked.result.valid and checked.entry_id is not None:
        # Stamped before the authority changed its time stamps: then by the roots on record.
        earlier = await to_thread.run_sync(_roots_on_record, authority, checked.entry_id)
        if earlier is not None:
            checked = await here.checkers.check(content, public_key, roots_pem(earlier))
    found = checked.result
    if not found.valid or found.entry_id is None:
        return found
    index = await to_thread.run_sync(authority.log.index_of, found.entry_id)
    return found.model_copy(update={"in_log": index == found.index})


def _roots_on_record(authority: Authority, entry_id: str) -> tuple[x509.Certificate, ...] | None:
    """Return the roots with which an entry was stamped, if they are others than today's."""
    try:
        roots = authority.log.receipt(entry_id).roots
    except NotFoundError:
        return None
    return None if roots == authority.roots else roots
