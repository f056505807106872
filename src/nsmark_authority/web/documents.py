"""Bodies that are one JSON document, and answers that are a receipt."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from nsmark_authority.receipt import Receipt
from nsmark_authority.statements import MAX_STATEMENT_BYTES, Statement, read_statement
from nsmark_authority.web.bodies import allow_bytes
from nsmark_authority.web.errors import PROBLEM_TYPE, WebError
from nsmark_authority.web.models import ReceiptObject
from nsmark_authority.web.security import NEEDS_TOKEN

MAX_SIGNED_BYTES = 2 * MAX_STATEMENT_BYTES
"""Of a statement in its envelope."""

MAX_CHECKED_BYTES = 1 << 20
"""Of a receipt that is checked here: its entry is a statement that we took, so it is shorter than
what readers of receipts prepare for. The rest is at most 128 KiB of checkpoint, as much of token,
16 roots of 16 KiB each, and 63 hashes."""

_ENVELOPE_SCHEMA = {
    "type": "object",
    "description": "A signed statement: a DSSE envelope, as `nsmark client` writes it.",
    "properties": {
        "payload": {"type": "string", "format": "byte"},
        "payloadType": {"type": "string"},
        "signatures": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "keyid": {"type": "string"},
                    "sig": {"type": "string", "format": "byte"},
                },
            },
        },
    },
    "required": ["payload", "payloadType", "signatures"],
    "example": {
        "payload": "eyJhdXRob3JpdHkiOiJuc21hcmsubG9jYWwifQ==",
        "payloadType": "application/vnd.nsmark.registration.v1+json",
        "signatures": [{"keyid": "9f86d081884c7d65…", "sig": "c2lnbmF0dXJl"}],
    },
}
RECEIPT_SCHEMA = {"$ref": "#/components/schemas/ReceiptObject"}
_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
_MEANINGS = {
    400: "The request is malformed, or was cut off.",
    401: "There is no valid token.",
    403: "The token or the signer may not do this.",
    404: "There is nothing of this name.",
    409: "It contradicts what is on record.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    422: "Something in the request is not acceptable; `detail` says what.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of errors for an endpoint."""
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {PROBLEM_TYPE: {"schema": _PROBLEM_REF}},
        }
        for status in statuses
    }


def answer(
    description: str, media_type: str, schema: dict[str, Any] | None = None
) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer that is no model; by default some text."""
    content = {media_type: {"schema": schema or {"type": "string"}}}
    return {200: {"description": description, "content": content}}


def document_body(schema: dict[str, Any] | None = None, *, needs_token: bool) -> dict[str, Any]:
    """Return ``openapi_extra`` for a body that is one document; by default an envelope."""
    content = {"application/json": {"schema": schema or _ENVELOPE_SCHEMA}}
    extra: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    return extra | (NEEDS_TOKEN if needs_token else {})


def form_body(files: str, *, many: bool, needed: bool, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return ``openapi_extra`` for a form with texts and files."""
    file: dict[str, Any] = {"type": "string", "format": "binary"}
    properties: dict[str, Any] = {name: {"type": "string"} for name in texts}
    if "envelope" in texts:
        properties["envelope"] |= {
            "description": "The signed statement's envelope, as JSON.",
            "example": '{"payload":"…","payloadType":"…","signatures":[]}',
        }
    properties[files] = {"type": "array", "items": file} if many else file
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in texts if name != "note"] + ([files] if needed else []),
        "additionalProperties": False,
    }
    content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}} | NEEDS_TOKEN


def receipt_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of answers that are a receipt."""
    meanings = {
        200: "It was on record already: the receipt that was given then.",
        201: "It is logged; the receipt proves it.",
    }
    return {
        status: {
            "description": meanings[status],
            "content": {"application/json": {"schema": RECEIPT_SCHEMA}},
        }
        for status in statuses
    }


async def read_document(request: Request, max_bytes: int = MAX_SIGNED_BYTES) -> bytes:
    """Return a body that is one JSON document, unread.

    Raises:
        WebError: Of another media type (415), or too large (413).
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise WebError(
            415, "the body must be application/json", "send it with Content-Type: application/json"
        )
    allow_bytes(request, max_bytes)
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise WebError(400, "the connection was closed before the end", "send it again") from error


async def read_receipt(request: Request) -> bytes:
    """Return a body that should be a receipt."""
    return await read_document(request, MAX_CHECKED_BYTES)


def peek(document: bytes) -> Statement:
    """Return what a statement says, before anybody checked who says it.

    Raises:
        TransparencyError: It is malformed.
    """
    return read_statement(document)


def receipt_answer(receipt: Receipt, status: int = 201) -> Response:
    """Return a receipt, byte by byte as it is kept."""
    return Response(receipt.to_json(), status, media_type="application/json")


def receipt_object(receipt: Receipt) -> ReceiptObject:
    """Return a receipt as a part of another answer."""
    return ReceiptObject.model_validate_json(receipt.to_json())
