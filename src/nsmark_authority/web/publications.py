"""``/v1/publications``: what keys are derived from and measured on."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response

from nsmark_authority.web.context import Here
from nsmark_authority.web.documents import (
    answer,
    form_body,
    problems,
    receipt_answer,
    receipt_responses,
)
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.models import Cursor, Digest, Limit, Page, PublicationView, make_page
from nsmark_authority.web.security import Admin
from nsmark_authority.web.uploads_in import Form, FormLimits, receive_form

router = APIRouter(prefix="/v1", tags=["publications"])
What = Literal["word_list", "pool", "control_set"]
_KINDS: tuple[What, ...] = ("word_list", "pool", "control_set")
_TEXTS = ("what", "name", "note")
_MAX_TEXT_BYTES = 16 << 10


@router.get("/publications", summary="What the authority published", responses=problems(422))
def publications(
    here: Here, what: What | None = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[PublicationView]:
    """List word lists, pools and control sets."""
    registry = here.authority.registry
    return make_page(
        PublicationView, lambda **page: registry.publications(what, **page), cursor, limit
    )


@router.get("/publications/{digest}", summary="One publication", responses=problems(404, 422))
def publication(here: Here, digest: Annotated[Digest, Path()]) -> PublicationView:
    """Return what was published under the digest by which keys name it."""
    return PublicationView.of(here.authority.registry.publication(digest))


@router.get(
    "/publications/{digest}/content",
    summary="The published text",
    response_class=Response,
    responses=answer("The text.", "text/plain") | problems(404, 422),
)
def publication_content(here: Here, digest: Annotated[Digest, Path()]) -> Response:
    """Return the file, byte by byte as it was published."""
    content = here.authority.publication_content(digest)
    return Response(content, media_type="text/plain")


@router.post(
    "/publications",
    status_code=201,
    summary="Publish a text (those who run the authority)",
    response_class=Response,
    responses=receipt_responses(200, 201) | problems(400, 401, 403, 409, 413, 415, 422),
    openapi_extra=form_body("content", many=False, needed=True, texts=_TEXTS),
)
async def publish(request: Request, here: Here, account: Admin) -> Response:
    """Publish a word list, a pool or the description of a control set."""
    limits = FormLimits(
        "content",
        here.authority.settings.max_publication_bytes,
        max_files=1,
        text_fields=_TEXTS,
        max_text_bytes=_MAX_TEXT_BYTES,
    )
    async with receive_form(request, here.spool, limits) as form:
        what = next((kind for kind in _KINDS if kind == _text(form, "what")), None)
        if what is None:
            raise WebError(422, "'what' is none of the kinds", f"one of {', '.join(_KINDS)}")
        name = _text(form, "name")
        note = _text(form, "note") if "note" in form.texts else ""
        file = form.one_file()

        def act() -> Response:
            with here.audited(account, "publication", name):
                size = here.authority.log.size()
                content = file.read(file.num_bytes)
                receipt = here.authority.publish(what, name, content, note=note)
                return receipt_answer(receipt, 201 if receipt.index >= size else 200)

        return await here.write(act)


def _text(form: Form, name: str) -> str:
    try:
        return form.text(name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WebError(422, f"{name!r} is not UTF-8", "send it as UTF-8") from error
