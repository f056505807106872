"""The log in the database: entries, the inner nodes of their Merkle tree, signed checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from cryptography import x509
from sqlalchemy import Connection, Row, func, insert, select

from nsmark.identity import Identity
from nsmark_authority.errors import AuthorityError, NotFoundError, TransparencyError
from nsmark_authority.receipt import Receipt
from nsmark_authority.records import LogEntry
from nsmark_authority.stamping import Stamp, roots_pem
from nsmark_authority.statements import OpenedStatement
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.tables import LOG_CHECKPOINTS, LOG_ENTRIES, LOG_NODES, LOG_ROOTS
from nsmark_authority.transparency import (
    Checkpoint,
    Frontier,
    consistency_proof,
    hash_leaf,
    inclusion_proof,
    sign_checkpoint,
)
from nsmark_authority.transparency.timestamp import read_root_certificates

MAX_ENTRIES = 1000
"""That are given out at once."""


class _StoredTree:
    """The nodes of the tree, read one by one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def subtree_hash(self, start: int, level: int) -> bytes:
        """Return the hash of a complete subtree."""
        found = self._connection.execute(
            select(LOG_NODES.c.hash).where(LOG_NODES.c.start == start, LOG_NODES.c.level == level)
        ).scalar_one_or_none()
        if found is None:
            raise TransparencyError(
                f"the log has no complete subtree {start}/{level}",
                "ask for a tree no larger than the log",
            )
        return bytes(found)


class Log:
    """The public log: appended to by one writer at a time, read by anybody."""

    def __init__(self, database: Database, name: str, identity: Identity) -> None:
        self._database = database
        self._name = name
        self._identity = identity

    # --- Writing, inside the caller's transaction. ---

    def append(
        self,
        connection: Connection,
        opened: OpenedStatement,
        stamp: Stamp,
        roots: tuple[x509.Certificate, ...],
        *,
        is_local: bool,
    ) -> LogEntry:
        """Add an entry, the nodes that it completes and the checkpoint over it."""
        size = log_size(connection)
        leaf = hash_leaf(opened.entry)
        frontier, completed = Frontier.load(_StoredTree(connection), size).append(leaf)
        row = {
            "position": size,
            "entry_id": opened.entry_id,
            "kind": opened.statement.kind,
            "time": stamp.time,
            "entry": opened.entry,
            "token": stamp.token,
            "roots": _save_roots(connection, roots, is_local=is_local),
        }
        connection.execute(insert(LOG_ENTRIES), row)
        nodes = [{"start": n.start, "level": n.level, "hash": n.hash} for n in completed]
        connection.execute(insert(LOG_NODES), nodes)
        note = self._sign(frontier.size, frontier.root)
        connection.execute(insert(LOG_CHECKPOINTS), {"size": frontier.size, "note": note})
        return LogEntry(
            index=size,
            entry_id=opened.entry_id,
            kind=opened.statement.kind,
            time=stamp.time,
            entry=opened.entry,
            token=stamp.token,
        )

    # --- Reading. ---

    def size(self) -> int:
        """Return the number of entries."""
        with self._database.read() as connection:
            return log_size(connection)

    def checkpoint(self, size: int | None = None) -> bytes:
        """Return the signed note over the first ``size`` entries, by default over all.

        Raises:
            NotFoundError: The log is not so large.
        """
        with self._database.read() as connection:
            return self._checkpoint(connection, log_size(connection) if size is None else size)

    def entry(self, which: int | str) -> LogEntry:
        """Return an entry by its index or its id.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _to_entry(_find(connection, which))

    def has(self, entry_id: str) -> bool:
        """Return whether there is an entry of this id."""
        with self._database.read() as connection:
            return is_logged(connection, entry_id)

    def index_of(self, entry_id: str) -> int | None:
        """Return the place of an entry, if there is one of this id."""
        query = select(LOG_ENTRIES.c.position).where(LOG_ENTRIES.c.entry_id == entry_id)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def entries(self, start: int = 0, count: int = 100, kind: str | None = None) -> list[LogEntry]:
        """Return entries from an index on, at most :data:`MAX_ENTRIES`."""
        query = select(LOG_ENTRIES).where(LOG_ENTRIES.c.position >= max(0, start))
        if kind is not None:
            query = query.where(LOG_ENTRIES.c.kind == kind)
        query = query.order_by(LOG_ENTRIES.c.position).limit(max(0, min(count, MAX_ENTRIES)))
        with self._database.read() as connection:
            return [_to_entry(row) for row in connection.execute(query)]

    def inclusion(self, index: int, size: int) -> tuple[bytes, ...]:
        """Return the proof that an entry is in the tree of the first ``size`` ones.

        Raises:
            TransparencyError: There is no such entry or tree.
        """
        with self._database.read() as connection:
            return inclusion_proof(_StoredTree(connection), index, size)

    def consistency(self, old_size: int, new_size: int) -> tuple[bytes, ...]:
        """Return the proof that the log only grew between two sizes.

        Raises:
            TransparencyError: There are no such trees.
        """
        with self._database.read() as connection:
            if new_size > log_size(connection):
                raise TransparencyError(
                    f"the log has fewer than {new_size} entries", "ask for its checkpoint first"
                )
            return consistency_proof(_StoredTree(connection), old_size, new_size)

    def receipt(self, which: int | str, size: int | None = None) -> Receipt:
        """Return the receipt of an entry, up to the checkpoint of a size; by default the newest.

        Raises:
            NotFoundError: There is no such entry, or the log is not so large.
            TransparencyError: The entry is younger than such a checkpoint.
        """
        with self._database.read() as connection:
            row = _find(connection, which)
            size = log_size(connection) if size is None else size
            return self._receipt(connection, row, size)

    def first_receipt(self, connection: Connection, entry_id: str) -> Receipt:
        """Return the receipt that was given when the entry was made: always the same."""
        row = _find(connection, entry_id)
        return self._receipt(connection, row, row.position + 1)

    def _receipt(self, connection: Connection, row: Row[Any], size: int) -> Receipt:
        note = self._checkpoint(connection, size)
        roots = connection.execute(select(LOG_ROOTS).where(LOG_ROOTS.c.sha256 == row.roots)).one()
        return Receipt(
            authority=self._name,
            public_key=self._identity.public_key,
            entry=bytes(row.entry),
            index=row.position,
            proof=inclusion_proof(_StoredTree(connection), row.position, size),
            checkpoint=note,
            token=bytes(row.token),
            roots=read_root_certificates(roots.pem.encode("ascii")),
            local_time=roots.is_local,
        )

    def _checkpoint(self, connection: Connection, size: int) -> bytes:
        if size == 0:
            return self._sign(0, Frontier().root)
        note = connection.execute(
            select(LOG_CHECKPOINTS.c.note).where(LOG_CHECKPOINTS.c.size == size)
        ).scalar_one_or_none()
        if note is None:
            raise NotFoundError(
                f"the log has no checkpoint over {size} entries", "ask for the newest one"
            )
        return bytes(note)

    def _sign(self, size: int, root: bytes) -> bytes:
        checkpoint = Checkpoint(origin=self._name, size=size, root=root)
        return sign_checkpoint(checkpoint, self._identity).to_bytes()


def log_size(connection: Connection) -> int:
    """Return the number of entries."""
    last = connection.execute(select(func.max(LOG_ENTRIES.c.position))).scalar_one()
    return 0 if last is None else int(last) + 1


def is_logged(connection: Connection, entry_id: str) -> bool:
    """Return whether there is an entry of this id."""
    return time_of(connection, entry_id) is not None


def time_of(connection: Connection, entry_id: str) -> str | None:
    """Return the time of an entry, if there is one of this id."""
    query = select(LOG_ENTRIES.c.time).where(LOG_ENTRIES.c.entry_id == entry_id)
    return connection.execute(query).scalar_one_or_none()


def all_entries(connection: Connection) -> Iterator[LogEntry]:
    """Yield the whole log in order, a part at a time."""
    size = log_size(connection)
    for start in range(0, size, MAX_ENTRIES):
        query = (
            select(LOG_ENTRIES)
            .where(LOG_ENTRIES.c.position.between(start, start + MAX_ENTRIES - 1))
            .order_by(LOG_ENTRIES.c.position)
        )
        found = [_to_entry(row) for row in connection.execute(query)]
        if [entry.index for entry in found] != list(range(start, min(size, start + MAX_ENTRIES))):
            raise AuthorityError("the log has gaps", "restore the database from a backup")
        yield from found


def _save_roots(
    connection: Connection, roots: Sequence[x509.Certificate], *, is_local: bool
) -> str:
    pem = roots_pem(tuple(roots))
    name = hashlib.sha256(pem.encode("ascii")).hexdigest()
    query = select(LOG_ROOTS.c.sha256).where(LOG_ROOTS.c.sha256 == name)
    if connection.execute(query).first() is None:
        row = {"sha256": name, "pem": pem, "is_local": is_local}
        connection.execute(insert(LOG_ROOTS), row)
    return name


def _find(connection: Connection, which: int | str) -> Row[Any]:
    column = LOG_ENTRIES.c.position if isinstance(which, int) else LOG_ENTRIES.c.entry_id
    row = connection.execute(select(LOG_ENTRIES).where(column == which)).one_or_none()
    if row is None:
        shown = which if isinstance(which, int) else f"{which[:16]}…"
        raise NotFoundError(f"the log has no entry {shown}", "look into the log for it")
    return row


def _to_entry(row: Row[Any]) -> LogEntry:
    return LogEntry(
        index=row.position,
        entry_id=row.entry_id,
        kind=row.kind,
        time=row.time,
        entry=bytes(row.entry),
        token=bytes(row.token),
    )
