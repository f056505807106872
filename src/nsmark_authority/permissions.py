"""Whether what an owner says may be said: looked at before the work, and again when it is logged.

Every function reads in the caller's transaction, changes nothing, and raises if it may not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from cryptography import x509
from sqlalchemy import Connection

from nsmark.errors import InputError
from nsmark_authority.errors import AccessDeniedError, ConflictError, NotFoundError
from nsmark_authority.fields import format_time, parse_time
from nsmark_authority.jobs import has_begun, utc_now
from nsmark_authority.records import ADMITTED, DepositedThing, FiledKey, OpenedDispute, Owner
from nsmark_authority.registry import (
    find_decided_dispute,
    find_deposit,
    find_dispute,
    find_fallen_dispute,
    find_filing,
    find_open_disputes,
    find_owner,
)
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.statements import Defence, Deposit, Dispute, Filing, Withdrawal
from nsmark_authority.transparency.strict_base64 import decode_base64
from nsmark_authority.transparency.timestamp import check_token


def check_filing(connection: Connection, statement: Filing, entry_id: str) -> None:
    """Whether a key may be filed: by a registered owner, once, after a key of his own."""
    owner = find_owner(connection, statement.signer().fingerprint)
    with contextlib.suppress(NotFoundError):
        # The same statement may have been logged a moment ago: that is no contradiction.
        if find_filing(connection, key_id=statement.key_id).entry_id != entry_id:
            raise ConflictError(
                "this key was filed before, with another statement",
                "its receipt can be had from the authority by the key's id",
            )
    if statement.succeeds is not None:
        earlier = find_filing(connection, key_id=statement.succeeds)
        if earlier.fingerprint != owner.fingerprint:
            raise AccessDeniedError(
                "the key to be succeeded is another owner's", "name one of your own"
            )


def check_dispute(connection: Connection, statement: Dispute, settings: AuthoritySettings) -> None:
    """Whether a dispute may be opened.

    Whoever could have the same content measured again and again would be right some day; an
    endpoint may serve another model tomorrow, so there the ruling tells of the earlier ones.
    """
    filing = find_filing(connection, key_id=statement.key_id)
    if filing.fingerprint != statement.signer().fingerprint:
        raise AccessDeniedError("the key is another owner's", "name one of your own")
    if filing.state not in ADMITTED:
        raise ConflictError(
            f"the key is not admitted: its filing is {filing.state!r}",
            "see its page for the reasons",
        )
    if parse_time(statement.released) > utc_now():
        raise InputError(
            f"the suspect cannot be public since {statement.released}: that is still to come",
            "say since when it is; see whether your clock is ahead",
        )
    if fell := find_fallen_dispute(connection, filing):
        raise ConflictError(
            "the claim fell in an earlier dispute: the mark was in something older of another "
            "side's",
            f"see dispute {fell.entry_id[:16]}",
        )
    content = statement.suspect.content_sha256
    if content is not None and (
        earlier := find_decided_dispute(connection, filing.key_id, content)
    ):
        raise ConflictError(
            "the same content is being ruled on under this key, or was before",
            f"see dispute {earlier.entry_id[:16]}",
        )
    limit = settings.max_open_disputes
    if len(find_open_disputes(connection, claimant=filing.fingerprint)) >= limit:
        raise ConflictError(
            f"{limit} disputes of yours are open, and no more may be at one time",
            "wait for a ruling, or withdraw one",
        )


def check_defence(connection: Connection, statement: Defence) -> None:
    """Whether a dispute may be answered: by others, until it is measured, with their own."""
    fingerprint = statement.signer().fingerprint
    find_owner(connection, fingerprint)
    dispute = find_dispute(connection, statement.dispute)
    if dispute.state != "open" or dispute.fingerprint == fingerprint:
        raise ConflictError(
            "the dispute is over, or it is the claimant who answers",
            "only others can answer, while it is open",
        )
    if has_begun(connection, "dispute", statement.dispute):
        raise ConflictError(
            "the time to answer is over: the dispute is being measured",
            "the ruling will be logged",
        )
    if statement.evidence is None:
        return
    evidence: DepositedThing | FiledKey
    try:
        evidence = find_deposit(connection, statement.evidence)
    except NotFoundError:
        evidence = find_filing(connection, entry_id=statement.evidence)
    if evidence.fingerprint != fingerprint:
        raise AccessDeniedError(
            "the evidence is another owner's", "name a deposit or filing of your own"
        )


def check_withdrawal(connection: Connection, statement: Withdrawal) -> None:
    """Whether a filing or dispute may be withdrawn: by its maker, while it matters."""
    subject: FiledKey | OpenedDispute
    try:
        subject = find_dispute(connection, statement.subject)
    except NotFoundError:
        subject = find_filing(connection, entry_id=statement.subject)
    if subject.fingerprint != statement.signer().fingerprint:
        raise AccessDeniedError("it is another owner's", "withdraw what is your own")
    if subject.state in ("withdrawn", "ruled"):
        raise ConflictError(f"it is {subject.state!r} already", "nothing is left to be done")
    if isinstance(subject, FiledKey) and find_open_disputes(connection, key_id=subject.key_id):
        raise ConflictError(
            "a dispute about this key is open", "withdraw the dispute first, or wait for it"
        )


def check_outside_time(statement: Deposit, roots: Sequence[x509.Certificate]) -> None:
    """Check a time stamp that somebody else gave, long ago perhaps."""
    if statement.token is None:
        return
    if not roots:
        raise InputError(
            "this authority believes no time stamps but its own",
            "deposit it without one, or ask the operator to name roots he trusts",
        )
    token = decode_base64(statement.token, "time stamp")
    found = check_token(token, bytes.fromhex(statement.content_sha256), roots)
    if found.time > utc_now():
        raise InputError(
            f"the time stamp says {format_time(found.time)}, which is still to come",
            "its authority's clock is ahead: get another one",
        )
    if format_time(found.time) != statement.proven:
        raise InputError(
            f"the time stamp says {format_time(found.time)}, not {statement.proven}",
            "state the time that it says",
        )


def require_not_renamed(owner: Owner, name: str) -> None:
    """Refuse a second name for one public key."""
    if owner.owner != name:
        raise ConflictError(
            f"this public key is registered as {owner.owner!r}",
            "register under the same name, or with another key",
        )
