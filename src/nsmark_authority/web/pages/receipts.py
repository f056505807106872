"""``/check``: receipts, checked in the browser and, if one wants, here."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response

from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.documents import MAX_CHECKED_BYTES
from nsmark_authority.web.models import ReceiptCheck
from nsmark_authority.web.pages.rendering import page
from nsmark_authority.web.receipts import check_content
from nsmark_authority.web.security import count_check
from nsmark_authority.web.uploads_in import FormLimits, receive_form

router = APIRouter(include_in_schema=False)
_LIMITS = FormLimits("receipt", MAX_CHECKED_BYTES, max_files=1, text_fields=())


@router.get("/check")
def check(here: Here) -> Response:
    """Ask for a receipt."""
    return _page(here, None)


@router.post("/check", dependencies=[Depends(count_check)])
async def check_here(request: Request, here: Here) -> Response:
    """Check a receipt with this authority's key and roots.

    Nothing is kept and nobody is logged in, so it does not matter which page sent the form.
    """
    async with receive_form(request, here.spool, _LIMITS) as form:
        content = await to_thread.run_sync(form.one_file().read, MAX_CHECKED_BYTES)
    if not content:
        missing = ReceiptCheck(
            valid=False, reason="no file was chosen", hint="choose a .receipt file"
        )
        return await to_thread.run_sync(_page, here, missing, 422)
    return await to_thread.run_sync(_page, here, await check_content(here, content))


def _page(here: Context, checked: ReceiptCheck | None, status: int = 200) -> Response:
    authority = here.authority
    return page(
        authority,
        "check.html",
        status,
        checked=checked,
        public_key=authority.public_key,
        max_bytes=MAX_CHECKED_BYTES,
    )
