"""Rows of the database as bytes that any database can take in again.

What follows from the log (inner nodes, views) is not archived: it is made anew, and so cannot
contradict it. Challenges are left out, too: one that was used after the back-up must not be open
again.

A row is its columns in their order, each one byte of kind and its value: whole numbers and floating
ones in 8 bytes (big-endian), texts (UTF-8) and bytes after their length in 4.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    func,
    insert,
    select,
    text,
)

from nsmark_authority.archive import altered
from nsmark_authority.storage.log import all_entries
from nsmark_authority.storage.tables import (
    CONTENT_FILES,
    CONTENTS,
    EVENTS,
    HANDED_OVER,
    JOBS,
    LOG_CHECKPOINTS,
    LOG_ENTRIES,
    LOG_NODES,
    LOG_ROOTS,
    TOKENS,
)
from nsmark_authority.transparency import Frontier, hash_leaf

ARCHIVED_TABLES = (
    LOG_ROOTS,
    LOG_ENTRIES,
    LOG_CHECKPOINTS,
    CONTENTS,
    CONTENT_FILES,
    HANDED_OVER,
    JOBS,
    TOKENS,
    EVENTS,
)
"""In an order in which they can be filled."""

MAX_ROW_BYTES = 8 << 20
BATCH_ROWS = 256

_NULL, _INT, _FLOAT, _BOOL, _TEXT, _BYTES = b"nifbsx"


def column_names(table: Table) -> tuple[str, ...]:
    """Return the columns in the order in which rows are written."""
    return tuple(column.name for column in table.columns)


def count_rows(connection: Connection, table: Table) -> int:
    """Return the number of rows."""
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def encode_row(table: Table, row: Row[Any]) -> bytes:
    """Return a row as bytes."""
    return b"".join(map(_encode, table.columns, row))


def decode_row(table: Table, content: bytes) -> dict[str, Any]:
    """Return the row that bytes stand for.

    Raises:
        InputError: They stand for none that this table could hold.
    """
    row: dict[str, Any] = {}
    place = 0
    try:
        for column in table.columns:
            row[column.name], place = _decode(column, content, place)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _no_row(table) from error
    if place != len(content):
        raise _no_row(table)
    return row


def insert_rows(connection: Connection, table: Table, rows: list[Mapping[str, Any]]) -> None:
    """Write rows, if there are any."""
    if rows:
        connection.execute(insert(table), rows)


def make_nodes(connection: Connection) -> None:
    """Compute the inner nodes of the log's tree from its entries."""
    frontier = Frontier()
    nodes: list[Mapping[str, Any]] = []
    for entry in all_entries(connection):
        frontier, completed = frontier.append(hash_leaf(entry.entry))
        nodes += ({"start": n.start, "level": n.level, "hash": n.hash} for n in completed)
        if len(nodes) >= BATCH_ROWS:
            insert_rows(connection, LOG_NODES, nodes)
            nodes = []
    insert_rows(connection, LOG_NODES, nodes)


def continue_numbers(connection: Connection) -> None:
    """Let the database number events after those that were written with their numbers."""
    if connection.dialect.name != "postgresql":
        return  # SQLite goes on after the largest
    last = connection.execute(select(func.max(EVENTS.c.number))).scalar_one()
    if last is not None:
        sequence = text("SELECT setval(pg_get_serial_sequence('events', 'number'), :last)")
        connection.execute(sequence, {"last": last})


def _encode(column: Column[Any], value: Any) -> bytes:
    if value is None:
        return bytes([_NULL])
    match _kind(column):
        case kind if kind == _BOOL:
            return bytes([kind, int(value)])
        case kind if kind == _INT:
            return struct.pack(">Bq", kind, value)
        case kind if kind == _FLOAT:
            return struct.pack(">Bd", kind, value)
        case kind:
            content = bytes(value) if kind == _BYTES else value.encode("utf-8")
            return struct.pack(">BI", kind, len(content)) + content


def _decode(column: Column[Any], content: bytes, place: int) -> tuple[Any, int]:
    """Return a column's value, and where the next one begins."""
    kind = content[place]
    place += 1
    value: Any = None
    if kind == _NULL and column.nullable:
        return None, place
    if kind != _kind(column):
        raise _no_row(column.table)
    if kind == _BOOL:
        value, place = content[place], place + 1
        if value > 1:
            raise _no_row(column.table)
        return bool(value), place
    if kind in (_INT, _FLOAT):
        (value,) = struct.unpack_from(">q" if kind == _INT else ">d", content, place)
        is_small = isinstance(column.type, Integer) and not isinstance(column.type, BigInteger)
        if not math.isfinite(value) or (is_small and abs(value) >= 1 << 31):
            raise _no_row(column.table)
        return value, place + 8
    (length,) = struct.unpack_from(">I", content, place)
    place += 4
    if length > len(content) - place:
        raise _no_row(column.table)
    value = content[place : place + length]
    if kind == _TEXT:
        value = value.decode("utf-8")
        longest = getattr(column.type, "length", None)
        # PostgreSQL holds no text with a zero in it.
        if (longest is not None and len(value) > longest) or "\x00" in value:
            raise _no_row(column.table)
    return value, place + length


def _kind(column: Column[Any]) -> int:
    for sort, kind in (
        (Boolean, _BOOL),
        (Integer, _INT),
        (Float, _FLOAT),
        (LargeBinary, _BYTES),
        (String, _TEXT),
    ):
        if isinstance(column.type, sort):
            return kind
    raise TypeError(f"{column} is of a kind that back-ups do not know")


def _no_row(table: Any) -> Exception:
    return altered(f"it holds what is no row of {table.name}")
