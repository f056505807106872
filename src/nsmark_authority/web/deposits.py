"""``/v1/deposits``: models and recorded outputs, dated."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from nsmark_authority.contents import Upload
from nsmark_authority.receipt import Receipt
from nsmark_authority.records import DepositedThing
from nsmark_authority.statements import Deposit, Dispute
from nsmark_authority.web.context import Here
from nsmark_authority.web.documents import (
    form_body,
    peek,
    problems,
    receipt_responses,
)
from nsmark_authority.web.models import (
    Cursor,
    DepositDetail,
    DepositView,
    Digest,
    EntryId,
    Limit,
    Page,
    make_page,
)
from nsmark_authority.web.saying import acknowledge
from nsmark_authority.web.security import Filer
from nsmark_authority.web.uploads_in import Form, FormLimits, receive_form

router = APIRouter(prefix="/v1", tags=["deposits"])


@router.post(
    "/deposits",
    status_code=201,
    summary="Date a model or recorded outputs",
    response_class=Response,
    responses=receipt_responses(200, 201) | problems(400, 401, 403, 404, 409, 413, 415, 422),
    openapi_extra=form_body("files", many=True, needed=False, texts=("envelope",)),
)
async def deposit(request: Request, here: Here, account: Filer) -> Response:
    """Take a signed deposit and, if they are to be handed over, its files.

    The file names of the parts are the names inside the model's folder. To hand the content over
    later, send the same statement with it.
    """
    limits = FormLimits("files", suspect_bytes(here))
    async with receive_form(request, here.spool, limits) as form:
        document = form.text("envelope")

        def say() -> Receipt:
            return here.authority.deposit(document, uploaded(form, document), by=account)

        return await acknowledge(here, account, "deposit", document, say)


@router.get("/deposits", summary="What was deposited", responses=problems(422))
def deposits(
    here: Here,
    fingerprint: Annotated[Digest | None, Query(description="Of the owner's key.")] = None,
    model: Annotated[Digest | None, Query(description="Digest of the model.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DepositView]:
    """List deposits of one owner, or of one model."""

    def find(before: int | None, limit: int) -> list[DepositedThing]:
        return here.authority.registry.deposits(
            fingerprint=fingerprint, model_digest=model, before=before, limit=limit
        )

    return make_page(DepositView, find, cursor, limit)


@router.get("/deposits/{entry_id}", summary="One deposit", responses=problems(404, 422))
def one_deposit(here: Here, entry_id: Annotated[EntryId, Path()]) -> DepositDetail:
    """Return a deposit by its entry."""
    found = here.authority.registry.deposit(entry_id)
    has_content = here.authority.contents.handed_over(entry_id) is not None
    return DepositDetail(**DepositView.of(found).model_dump(), has_content=has_content)


def suspect_bytes(here: Here) -> int:
    """Return how large the files of a deposit or suspect may be."""
    settings = here.authority.settings
    return max(settings.max_model_bytes, settings.max_recorded_bytes)


def uploaded(form: Form, document: bytes) -> Upload | None:
    """Return the files of a form as the statement calls for: a folder's, one file, or none."""
    if not form.files:
        return None
    statement = peek(document)
    is_folder = (isinstance(statement, Deposit) and statement.what == "model") or (
        isinstance(statement, Dispute) and statement.suspect.kind == "model"
    )
    return list(form.files) if is_folder else form.one_file()
