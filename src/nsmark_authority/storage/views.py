"""Tables that follow from the log: what each entry does to them, and how to make them anew."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from nsmark_authority.fields import public_key_of
from nsmark_authority.records import FilingState, LogEntry
from nsmark_authority.statements import (
    Admission,
    Defence,
    Deposit,
    Dispute,
    Filing,
    Publication,
    Registration,
    Ruling,
    Statement,
    Withdrawal,
    read_statement,
)
from nsmark_authority.storage.log import all_entries
from nsmark_authority.storage.tables import (
    VIEW_DEFENCES,
    VIEW_DEPOSITS,
    VIEW_DISPUTES,
    VIEW_FILINGS,
    VIEW_OWNERS,
    VIEW_PUBLICATIONS,
    VIEW_RULINGS,
    VIEWS,
)


def rebuild_views(connection: Connection) -> int:
    """Empty the views and play the log into them again; return the number of entries."""
    for table in VIEWS:
        connection.execute(delete(table))
    count = 0
    for entry in all_entries(connection):
        apply_entry(connection, entry, read_statement(entry.entry))
        count += 1
    return count


def apply_entry(connection: Connection, entry: LogEntry, statement: Statement) -> None:
    """Write into the views what an entry means; nothing but the entry and the views is read."""
    match statement:
        case Registration():
            _insert(connection, VIEW_OWNERS, entry, _owner_row(statement))
        case Filing():
            _insert(connection, VIEW_FILINGS, entry, _filing_row(statement))
        case Deposit():
            row = statement.model_dump(exclude={"authority", "public_key", "token"})
            row["fingerprint"] = statement.signer().fingerprint
            _insert(connection, VIEW_DEPOSITS, entry, row)
        case Publication():
            row = statement.model_dump(exclude={"authority"})
            _insert(connection, VIEW_PUBLICATIONS, entry, row)
        case Dispute():
            _insert(connection, VIEW_DISPUTES, entry, _dispute_row(statement))
            _reveal(connection, entry, statement.key_id)
        case Defence():
            row = statement.model_dump(exclude={"authority", "public_key"})
            row["fingerprint"] = statement.signer().fingerprint
            _insert(connection, VIEW_DEFENCES, entry, row)
        case Admission():
            changes = {"admitted": statement.admitted, "admission": entry.entry_id}
            _update_filing(connection, statement.key_id, changes)
        case Ruling():
            names = {"dispute", "key_id", "outcome", "verdict", "report_sha256"}
            _insert(connection, VIEW_RULINGS, entry, statement.model_dump(include=names))
            connection.execute(
                update(VIEW_DISPUTES)
                .where(VIEW_DISPUTES.c.entry_id == statement.dispute)
                .values(state="ruled", outcome=statement.outcome, ruling=entry.entry_id)
            )
        case Withdrawal():
            _withdraw(connection, entry, statement.subject)


def fold(text: str) -> str:
    """Return a text as it is searched: without regard to case and spaces."""
    return " ".join(text.casefold().split())


def filing_state(
    *, admitted: bool | None, is_revealed: bool, has_successor: bool, is_withdrawn: bool
) -> FilingState:
    """Return the one word for what became of a filing."""
    if is_withdrawn:
        return "withdrawn"
    if admitted is None:
        return "waiting"
    if not admitted:
        return "refused"
    if not is_revealed:
        return "admitted"
    return "succeeded" if has_successor else "revealed"


def _owner_row(statement: Registration) -> dict[str, Any]:
    return {
        "fingerprint": statement.signer().fingerprint,
        "owner": statement.owner,
        "folded_owner": fold(statement.owner),
        "public_key": statement.public_key,
    }


def _filing_row(statement: Filing) -> dict[str, Any]:
    claim = statement.ownership_claim()
    return {
        "key_id": statement.key_id,
        "fingerprint": public_key_of(statement.public_key).fingerprint,
        "owner": claim.owner,
        "folded_owner": fold(claim.owner),
        "message": claim.message,
        "folded_text": fold(f"{claim.owner} {claim.message}"),
        "created": claim.created,
        "signature_sha256": statement.signature_sha256,
        "content_sha256": statement.content_sha256,
        "content_bytes": statement.content_bytes,
        "model_digest": statement.model_digest,
        "succeeds": statement.succeeds,
        "state": "waiting",
    }


def _dispute_row(statement: Dispute) -> dict[str, Any]:
    return {
        "key_id": statement.key_id,
        "fingerprint": statement.signer().fingerprint,
        "suspect": statement.suspect.to_json().decode("utf-8"),
        "content_sha256": statement.suspect.content_sha256,
        "released": statement.released,
        "statement": statement.statement,
        "state": "open",
    }


def _insert(connection: Connection, table: Table, entry: LogEntry, row: dict[str, Any]) -> None:
    place = {"position": entry.index, "entry_id": entry.entry_id, "time": entry.time}
    connection.execute(insert(table), place | row)


def _reveal(connection: Connection, entry: LogEntry, key_id: str) -> None:
    query = select(VIEW_FILINGS.c.revealed_by).where(VIEW_FILINGS.c.key_id == key_id)
    if connection.execute(query).scalar_one_or_none() is None:
        _update_filing(connection, key_id, {"revealed_by": entry.entry_id})


def _withdraw(connection: Connection, entry: LogEntry, subject: str) -> None:
    connection.execute(
        update(VIEW_DISPUTES).where(VIEW_DISPUTES.c.entry_id == subject).values(state="withdrawn")
    )
    query = select(VIEW_FILINGS.c.key_id).where(VIEW_FILINGS.c.entry_id == subject)
    key_id = connection.execute(query).scalar_one_or_none()
    if key_id is not None:
        _update_filing(connection, key_id, {"withdrawn_by": entry.entry_id})


def _update_filing(connection: Connection, key_id: str, changes: dict[str, Any]) -> None:
    """Change a filing, and the state of it and of the one whose place it takes."""
    table = VIEW_FILINGS
    connection.execute(update(table).where(table.c.key_id == key_id).values(**changes))
    succeeds = connection.execute(
        select(table.c.succeeds).where(table.c.key_id == key_id)
    ).scalar_one_or_none()
    for one in (key_id, succeeds):
        row = connection.execute(select(table).where(table.c.key_id == one)).one_or_none()
        if row is None:
            continue
        successor = select(table.c.key_id).where(
            table.c.succeeds == one,
            table.c.admitted.is_(True),
            table.c.withdrawn_by.is_(None),
        )
        state = filing_state(
            admitted=row.admitted,
            is_revealed=row.revealed_by is not None,
            has_successor=connection.execute(successor).first() is not None,
            is_withdrawn=row.withdrawn_by is not None,
        )
        connection.execute(update(table).where(table.c.key_id == one).values(state=state))
