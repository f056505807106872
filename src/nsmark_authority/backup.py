"""Back-ups: an authority in one file, as it was at one moment, while it goes on working.

The file holds the log, accounts, jobs, the folder's keys and the sealed content, still sealed. With
the keys in it, whoever can read it is the authority: it is encrypted unless wished otherwise.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field
from sqlalchemy import Connection, select

from nsmark import __version__
from nsmark.errors import FileAccessError
from nsmark.files import new_file, read_bounded
from nsmark_authority.archive import ArchiveWriter
from nsmark_authority.archived_rows import (
    ARCHIVED_TABLES,
    BATCH_ROWS,
    column_names,
    count_rows,
    encode_row,
)
from nsmark_authority.checking import content_names, require_authority, unseal
from nsmark_authority.errors import AuthorityError
from nsmark_authority.fields import (
    AuthorityName,
    Count,
    Line,
    Record,
    Time,
    format_time,
)
from nsmark_authority.folder import AuthorityFolder, locked_folder, open_folder
from nsmark_authority.sealing import SealedStore
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.log import log_size
from nsmark_authority.storage.snapshots import snapshot
from nsmark_authority.storage.tables import LOG_CHECKPOINTS, LOG_ENTRIES
from nsmark_authority.transparency import (
    MAX_NOTE_BYTES,
    Checkpoint,
    Frontier,
    hash_leaf,
    open_checkpoint,
    sign_checkpoint,
)
from nsmark_authority.transparency.checkpoint import NoteKey

BACKUP_FORMAT: Final = "nsmark/backup/1"
MAX_HEADER_BYTES = 4 * MAX_NOTE_BYTES
MAX_KEY_FILE_BYTES = 64 << 10
HEADER, KEY_FILE, ROW, CONTENT = b"H", b"F", b"R", b"C"
"""Kinds of records, in the order in which they come."""

KEY_FILES = (
    "authority.json",
    "signing.pem",
    "signing.pub",
    "data.key",
    "timestamps/root.pem",
    "timestamps/authority.pem",
    "timestamps/key.pem",
    "timestamps/serial.txt",
)
"""What is taken from the folder, but for sealed content; a back-up holds no other names."""


class ArchivedTable(Record):
    """Which rows a back-up holds of a table."""

    name: Line
    columns: Annotated[tuple[Line, ...], Field(max_length=64, strict=False)]
    rows: Count


class BackupHeader(Record):
    """What a back-up says of itself."""

    format: Literal["nsmark/backup/1"] = BACKUP_FORMAT
    authority: AuthorityName
    created: Time
    nsmark: Line
    """Version of the program."""

    checkpoint: Annotated[str, Field(max_length=MAX_NOTE_BYTES)]
    """Signed note over the whole log."""

    tables: Annotated[tuple[ArchivedTable, ...], Field(max_length=64, strict=False)]
    num_contents: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSummary:
    """What a back-up holds."""

    authority: str
    num_entries: int
    num_contents: int
    """Sealed files."""

    checkpoint: bytes = field(repr=False)
    """Signed note over the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBackup:
    """A back-up that was written."""

    path: Path
    sha256: str
    """Of the file."""

    num_bytes: int
    holds: BackupSummary


def write_backup(
    settings: AuthoritySettings, path: Path, passphrase: bytes | None
) -> WrittenBackup:
    """Write a back-up of an authority, which may go on working.

    Every entry that was acknowledged before the call is in it. What is sealed is unsealed once: a
    back-up that could not be restored is none.

    Args:
        settings: Folder and database.
        path: A new file, for its owner's eyes only.
        passphrase: Under which it is encrypted; plain, if None.

    Raises:
        NotFoundError: There is no authority.
        AuthorityError: Something in it is damaged.
        FileAccessError: The file exists, or cannot be written.
    """
    require_authority(settings)
    with locked_folder(settings.folder):
        folder = open_folder(settings)
    with (
        new_file(path, 0o600) as stream,
        contextlib.closing(Database(settings.database)) as database,
    ):
        writer = ArchiveWriter(stream, passphrase)
        with snapshot(database) as connection:
            names = content_names(connection)
            header = _describe(connection, folder, len(names))
            writer.record(HEADER, header.to_json())
            for name in KEY_FILES:
                content = read_bounded(settings.folder / name, MAX_KEY_FILE_BYTES, "key file")
                writer.record(KEY_FILE, name.encode("ascii") + b"\x00" + content)
            frontier = _write_rows(connection, writer)
        _require_tree(header, folder, frontier)
        # What a row names stays where it is: no transaction need be held for it.
        for sha256 in names:
            _write_content(writer, folder.store, sha256)
        sha256, num_bytes = writer.finish()
    summary = BackupSummary(
        authority=header.authority,
        num_entries=frontier.size,
        num_contents=len(names),
        checkpoint=header.checkpoint.encode("utf-8"),
    )
    return WrittenBackup(path=path, sha256=sha256, num_bytes=num_bytes, holds=summary)


def _describe(connection: Connection, folder: AuthorityFolder, num_contents: int) -> BackupHeader:
    size = log_size(connection)
    query = select(LOG_CHECKPOINTS.c.note).where(LOG_CHECKPOINTS.c.size == size)
    note = connection.execute(query).scalar_one_or_none()
    if size == 0:
        empty = Checkpoint(origin=folder.name, size=0, root=Frontier().root)
        note = sign_checkpoint(empty, folder.identity).to_bytes()
    if note is None:
        raise _damaged("the log has no checkpoint")
    return BackupHeader(
        authority=folder.name,
        created=format_time(datetime.datetime.now(datetime.UTC)),
        nsmark=__version__,
        checkpoint=bytes(note).decode("utf-8"),
        tables=tuple(
            ArchivedTable(
                name=table.name, columns=column_names(table), rows=count_rows(connection, table)
            )
            for table in ARCHIVED_TABLES
        ),
        num_contents=num_contents,
    )


def _write_rows(connection: Connection, writer: ArchiveWriter) -> Frontier:
    """Write all rows; return the frontier of the log that was among them."""
    frontier = Frontier()
    for table in ARCHIVED_TABLES:
        query = select(table).order_by(*table.primary_key.columns)
        for row in connection.execute(query.execution_options(yield_per=BATCH_ROWS)):
            writer.record(ROW, encode_row(table, row))
            if table is LOG_ENTRIES:
                frontier, _ = frontier.append(hash_leaf(bytes(row.entry)))
    return frontier


def _require_tree(header: BackupHeader, folder: AuthorityFolder, frontier: Frontier) -> None:
    key = NoteKey(folder.name, folder.identity.public_key)
    checkpoint = open_checkpoint(header.checkpoint.encode("utf-8"), key)
    if (checkpoint.size, checkpoint.root) != (frontier.size, frontier.root):
        raise _damaged("the log is not the one that its checkpoint signs")


def _write_content(writer: ArchiveWriter, store: SealedStore, sha256: str) -> None:
    unseal(store, sha256)
    try:
        source = store.path(sha256).open("rb")
    except OSError as error:
        raise FileAccessError(
            f"cannot read sealed content: {error.strerror or error}",
            "see whether the authority's disk is there",
        ) from error
    with source:
        size = os.fstat(source.fileno()).st_size
        writer.record_file(CONTENT, bytes.fromhex(sha256), source, size)


def _damaged(reason: str) -> AuthorityError:
    return AuthorityError(reason, "see `nsmark authority check`, and restore a back-up")
