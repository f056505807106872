"""``/claims``, ``/owners``: what is claimed, and by whom."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import RedirectResponse

from nsmark_authority.errors import NotFoundError
from nsmark_authority.records import FiledKey, FilingState
from nsmark_authority.statements import Admission, Withdrawal
from nsmark_authority.web.context import Context, Here
from nsmark_authority.web.documents import peek
from nsmark_authority.web.models import Cursor, EntryId, Fingerprint, KeyId
from nsmark_authority.web.pages.lists import part_of
from nsmark_authority.web.pages.rendering import page

router = APIRouter(include_in_schema=False)
_MAX_ROWS = 50
_KEY_BEGINNING = re.compile(r"[0-9a-f]{8,64}")


@router.get("/claims")
def claims(
    here: Here,
    text: Annotated[str, Query(max_length=256)] = "",
    state: FilingState | Literal[""] = "",
    cursor: Cursor = None,
) -> Response:
    """Search the registry for words, or for the beginning of a key's id."""
    text = text.strip()
    is_key = _KEY_BEGINNING.fullmatch(text.lower()) is not None

    def find(before: int | None, limit: int) -> list[FiledKey]:
        return here.authority.registry.search_filings(
            "" if is_key else text,
            key_id=text.lower() if is_key else None,
            state=state or None,
            before=before,
            limit=limit,
        )

    part = part_of(find, "/claims", cursor, text=text, state=state)
    return page(here.authority, "claims.html", part=part, text=text, state=state, is_key=is_key)


@router.get("/claims/{entry_id}")
def claim(here: Here, entry_id: Annotated[EntryId, Path()]) -> Response:
    """Show a filed claim and what became of it."""
    authority = here.authority
    filing = authority.registry.filing(entry_id)
    jobs = authority.jobs.of_subject(entry_id)
    return page(
        authority,
        "claim.html",
        filing=filing,
        registered=authority.registry.owner(filing.fingerprint).owner,
        decision=_decision(here, filing),
        withdrawal=_withdrawal(here, filing),
        job=jobs[-1] if jobs else None,
        has_controls=bool(authority.settings.control_models),
        predecessor=_filing_of_key(here, filing.succeeds),
        successors=authority.registry.search_filings(succeeds=filing.key_id),
        disputes=authority.registry.disputes(key_id=filing.key_id, limit=_MAX_ROWS),
        most=_MAX_ROWS,
    )


@router.get("/keys/{key_id}")
def key(here: Here, key_id: Annotated[KeyId, Path()]) -> Response:
    """Lead to the claim of a key."""
    filing = here.authority.registry.filing_of_key(key_id)
    return RedirectResponse(f"/claims/{filing.entry_id}", 303)


@router.get("/owners/{fingerprint}")
def owner(
    here: Here, fingerprint: Annotated[Fingerprint, Path()], cursor: Cursor = None
) -> Response:
    """Show who registered a public key, and what he filed, deposited and disputed."""
    registry = here.authority.registry
    found = registry.owner(fingerprint)

    def find(before: int | None, limit: int) -> list[FiledKey]:
        return registry.search_filings(fingerprint=fingerprint, before=before, limit=limit)

    return page(
        here.authority,
        "owner.html",
        owner=found,
        part=part_of(find, f"/owners/{fingerprint}", cursor),
        deposits=registry.deposits(fingerprint=fingerprint, limit=_MAX_ROWS),
        disputes=registry.disputes(fingerprint=fingerprint, limit=_MAX_ROWS),
        most=_MAX_ROWS,
        has_namesakes=len(registry.owners(found.owner, limit=2)) > 1,
    )


def _decision(here: Context, filing: FiledKey) -> Admission | None:
    if filing.admission is None:
        return None
    statement = peek(here.authority.log.entry(filing.admission).entry)
    return statement if isinstance(statement, Admission) else None


def _withdrawal(here: Context, filing: FiledKey) -> Withdrawal | None:
    if filing.withdrawn_by is None:
        return None
    statement = peek(here.authority.log.entry(filing.withdrawn_by).entry)
    return statement if isinstance(statement, Withdrawal) else None


def _filing_of_key(here: Context, key_id: str | None) -> FiledKey | None:
    if key_id is None:
        return None
    try:
        return here.authority.registry.filing_of_key(key_id)
    except NotFoundError:
        return None
