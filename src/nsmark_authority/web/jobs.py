"""``/v1/jobs``, ``/v1/audit``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from nsmark_authority.errors import NotFoundError
from nsmark_authority.records import Job
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.documents import problems
from nsmark_authority.web.models import (
    AuditPage,
    Cursor,
    EventView,
    JobView,
    Limit,
    decode_cursor,
    encode_cursor,
)
from nsmark_authority.web.security import NEEDS_TOKEN, AdminReader, AnyReader

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get(
    "/jobs/{job_id}",
    summary="Work in the background",
    responses=problems(401, 404, 422),
    openapi_extra=NEEDS_TOKEN,
)
def job(
    here: Here, account: AnyReader, job_id: Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
) -> JobView:
    """Return a job about one's own filing or dispute; those who run the authority see all."""
    found = here.authority.jobs.get(job_id)
    if "admin" not in account.scopes and _whose(here, found) != account.fingerprint:
        raise NotFoundError(f"there is no job {job_id!r} of yours", "look at the filing or dispute")
    return JobView.of(found)


@router.get(
    "/audit",
    summary="The audit trail (those who run the authority)",
    responses=problems(401, 403, 422),
    openapi_extra=NEEDS_TOKEN,
)
def audit(here: Here, account: AdminReader, limit: Limit = 50, cursor: Cursor = None) -> AuditPage:
    """List what was done and refused, newest first."""
    found = here.authority.accounts.events(before=decode_cursor(cursor), limit=limit + 1)
    more = len(found) > limit
    return AuditPage(
        items=[EventView.of(event) for event in found[:limit]],
        next=encode_cursor(found[limit - 1].number) if more else None,
    )


def _whose(here: Context, found: Job) -> str:
    registry = here.authority.registry
    if found.kind == "dispute":
        return registry.dispute(found.subject).fingerprint
    return registry.filing(found.subject).fingerprint
