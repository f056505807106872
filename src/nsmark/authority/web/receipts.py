"""``/v1/receipts``: proofs, made anew and checked."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from cryptography import x509
from fastapi import APIRouter, Path, Request, Response

from nsmark.authority.fields import format_time
from nsmark.authority.receipt import Receipt, check_receipt
from nsmark.authority.service import Authority
from nsmark.authority.statements import Filing, Registration
from nsmark.authority.web.context import Here
from nsmark.authority.web.documents import (
    RECEIPT_SCHEMA,
    answer,
    document_body,
    problems,
    read_receipt,
    receipt_answer,
)
from nsmark.authority.web.errors import WebError
from nsmark.authority.web.models import EntryId, ReceiptCheck
from nsmark.errors import NotFoundError, TransparencyError
from nsmark.identity import PublicKey

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
    responses=problems(400, 413, 415),
    openapi_extra=document_body(_ANYTHING, needs_token=False),
)
async def check(request: Request, here: Here) -> ReceiptCheck:
    """Check a receipt with this authority's own key and roots.

    Those who do not trust the authority check it themselves: `nsmark client check-receipt`.
    """
    content = await read_receipt(request)
    return await to_thread.run_sync(check_content, here.authority, content, limiter=here.checking)


def check_content(authority: Authority, content: bytes) -> ReceiptCheck:
    """Return what a receipt proves, by this authority's key and roots, and what its log says."""
    found = _check(content, authority.public_key, authority.roots)
    if not found.valid:
        # Stamped before the authority changed its time stamps: then by the roots on record.
        try:
            roots = authority.log.receipt(Receipt.parse(content).entry_id).roots
        except (NotFoundError, TransparencyError):
            return found
        if roots == authority.roots:
            return found
        found = _check(content, authority.public_key, roots)
    if not found.valid or found.entry_id is None:
        return found
    in_log = authority.log.index_of(found.entry_id) == found.index
    return found.model_copy(update={"in_log": in_log})


def _check(
    content: bytes, public_key: PublicKey, roots: tuple[x509.Certificate, ...]
) -> ReceiptCheck:
    try:
        checked = check_receipt(Receipt.parse(content), public_key, roots)
    except TransparencyError as error:
        return ReceiptCheck(valid=False, reason=str(error), hint=error.hint)
    statement = checked.statement
    owner = None
    if isinstance(statement, Registration):
        owner = statement.owner
    elif isinstance(statement, Filing):
        owner = statement.claim["owner"]
    return ReceiptCheck(
        valid=True,
        entry_id=checked.entry_id,
        index=checked.index,
        kind=statement.kind,
        owner=owner,
        fingerprint=checked.opened.signer.fingerprint,
        content_sha256=getattr(statement, "content_sha256", None),
        time=format_time(checked.time),
        local_time=checked.is_local_time,
        tree_size=checked.tree_size,
    )
