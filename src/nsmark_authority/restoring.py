"""Restoring: a back-up becomes an authority again, after everything in it was checked.

It goes into a new folder and an empty database, of either kind. The folder appears under its name
when everything else is done; a database elsewhere is filled in one transaction, which is the very
last thing that happens. A restore that is cut off leaves no authority that would start.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, inspect, select, text
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from nsmark.errors import FileAccessError, InputError, NsmarkError
from nsmark.files import ensure_new_folder, new_folder, sync_folder, write_atomic, write_errors
from nsmark.identity import PublicKey
from nsmark_authority.archive import ArchiveReader, altered
from nsmark_authority.archived_rows import (
    ARCHIVED_TABLES,
    BATCH_ROWS,
    MAX_ROW_BYTES,
    column_names,
    continue_numbers,
    decode_row,
    insert_rows,
    make_nodes,
)
from nsmark_authority.backup import (
    CONTENT,
    HEADER,
    KEY_FILE,
    KEY_FILES,
    MAX_HEADER_BYTES,
    MAX_KEY_FILE_BYTES,
    ROW,
    BackupHeader,
    BackupSummary,
)
from nsmark_authority.checking import (
    check_contents,
    check_givers,
    check_jobs,
    check_log,
    content_names,
)
from nsmark_authority.errors import ConflictError
from nsmark_authority.fields import parse_canonical
from nsmark_authority.folder import AuthorityFolder, open_folder, save_last_checkpoint
from nsmark_authority.sealing import SealedStore
from nsmark_authority.settings import DATABASE_FILE, AuthoritySettings
from nsmark_authority.storage.database import Database, parse_url
from nsmark_authority.storage.log import log_size
from nsmark_authority.storage.tables import LOG_CHECKPOINTS, LOG_ENTRIES, METADATA
from nsmark_authority.storage.views import rebuild_views
from nsmark_authority.transparency import open_checkpoint
from nsmark_authority.transparency.checkpoint import NoteKey

_SERIAL_FILE = "timestamps/serial.txt"
_SKIPPED_SERIALS = 1 << 32
_DIGEST_BYTES = 32
_MAX_CONTENT_BYTES = 1 << 44
_DISK_HINT = "choose a folder you can write to, with enough space"


def restore_backup(
    path: Path, settings: AuthoritySettings, passphrase: bytes | None
) -> BackupSummary:
    """Make an authority from a back-up.

    Args:
        path: What :func:`nsmark_authority.backup.write_backup` wrote.
        settings: A folder that is not there yet, or is empty; perhaps an empty database.
        passphrase: Of the back-up, if it is encrypted.

    Raises:
        InputError: The back-up is truncated, altered or contradicts itself: nothing is restored.
        ConflictError: The database holds something.
        FileAccessError: The folder holds something, or cannot be written.
    """
    folder = settings.folder
    ensure_new_folder(folder)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise FileAccessError(
            f"cannot read back-up {path}: {error.strerror or error}", "check the path"
        ) from error
    with stream:
        reader = ArchiveReader(stream, passphrase)
        header = _read_header(reader)
        if settings.database_url is None:
            summary = _restore_with_file(reader, header, folder)
        else:
            summary = _restore_elsewhere(reader, header, folder, settings.database_url)
    return summary


def _restore_with_file(reader: ArchiveReader, header: BackupHeader, folder: Path) -> BackupSummary:
    with new_folder(folder) as staging:
        url = f"sqlite:///{(staging / DATABASE_FILE).absolute()}"
        with contextlib.closing(Database(url)) as database, database.write() as connection:
            summary = _restore(reader, header, staging, connection)
        sync_folder(staging)
    _settle(folder)
    return summary


def _restore_elsewhere(
    reader: ArchiveReader, header: BackupHeader, folder: Path, url: str
) -> BackupSummary:
    with _empty_database(url) as database:
        is_placed = False
        try:
            with database.write() as connection:
                with new_folder(folder) as staging:
                    summary = _restore(reader, header, staging, connection)
                # The folder comes first: without its rows the authority does not start, whereas
                # rows without their folder could not be told from somebody else's.
                is_placed = True
                _settle(folder)
        except BaseException:
            if is_placed:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    return summary


def _settle(folder: Path) -> None:
    with write_errors(folder, _DISK_HINT):
        folder.chmod(0o700)
    sync_folder(folder.parent)


@contextlib.contextmanager
def _empty_database(url: str) -> Iterator[Database]:
    """Open a database; if the block fails, tables that were made for it are gone again."""
    was_bare = _is_bare(url)
    with contextlib.closing(Database(url)) as database:
        with database.read() as connection:
            for table in METADATA.sorted_tables:
                if connection.execute(select(table).limit(1)).first() is not None:
                    raise ConflictError(
                        f"the database holds something already ({table.name})",
                        "give an empty one",
                    )
        try:
            yield database
        except BaseException:
            if was_bare:
                with contextlib.suppress(NsmarkError), database.write() as connection:
                    METADATA.drop_all(connection)
                    connection.execute(text("DROP TABLE alembic_version"))
            raise


def _is_bare(url: str) -> bool:
    engine = create_engine(parse_url(url))
    try:
        return not inspect(engine).has_table(LOG_ENTRIES.name)
    except SQLAlchemyError:
        return False  # the reason is told when the database is opened in earnest
    finally:
        engine.dispose()


def _restore(
    reader: ArchiveReader, header: BackupHeader, staging: Path, connection: Connection
) -> BackupSummary:
    _restore_key_files(reader, staging)
    folder = _open_keys(header, staging)
    with _contradictions():
        _restore_rows(reader, header, connection)
    names = content_names(connection)
    if len(names) != header.num_contents:
        raise altered("it has more sealed files, or fewer, than it says")
    for sha256 in names:
        _restore_content(reader, folder.store, sha256)
    reader.finish()
    with _contradictions():
        make_nodes(connection)
        _require_sound(connection, header, folder)
        rebuild_views(connection)
        continue_numbers(connection)
    _require_none(check_jobs(connection))
    _require_none(check_contents(connection, folder.store))
    _require_none(check_givers(connection))
    note = header.checkpoint.encode("utf-8")
    save_last_checkpoint(staging, note)
    for place in (staging / "timestamps", staging / "content", staging):
        sync_folder(place)
    return BackupSummary(
        authority=header.authority,
        num_entries=log_size(connection),
        num_contents=len(names),
        checkpoint=note,
    )


def _read_header(reader: ArchiveReader) -> BackupHeader:
    content = reader.record(HEADER, MAX_HEADER_BYTES)
    try:
        members = parse_canonical(content, "header", MAX_HEADER_BYTES)
        header = BackupHeader.from_members(members, "header")
    except NsmarkError as error:
        raise altered(str(error)) from error
    found = [(table.name, table.columns) for table in header.tables]
    if found != [(table.name, column_names(table)) for table in ARCHIVED_TABLES]:
        raise InputError(
            f"the back-up was made by another version of nsmark ({header.nsmark})",
            "restore it with that version, then upgrade",
        )
    return header


def _restore_key_files(reader: ArchiveReader, staging: Path) -> None:
    for name in KEY_FILES:
        record = reader.record(KEY_FILE, MAX_KEY_FILE_BYTES + 64)
        found, _, content = record.partition(b"\x00")
        # The names are ours: none from outside becomes a path.
        if found != name.encode("ascii"):
            raise altered("it holds other files than an authority has")
        if name == _SERIAL_FILE:
            content = _later_serial(content)
        with write_errors(staging, _DISK_HINT):
            (staging / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(staging / name, content, 0o644 if name.endswith(".pub") else 0o600)


def _later_serial(content: bytes) -> bytes:
    """Skip the numbers of time stamps that were given after the back-up: none is given twice."""
    if not content.strip().isdigit() or len(content) > 40:
        raise altered("the number of the last time stamp is none")
    return b"%d\n" % (int(content) + _SKIPPED_SERIALS)


def _open_keys(header: BackupHeader, staging: Path) -> AuthorityFolder:
    try:
        folder = open_folder(AuthoritySettings(folder=staging))
        public_key = PublicKey.load(staging / "signing.pub")
    except InputError as error:
        raise altered(str(error)) from error
    if folder.name != header.authority or public_key != folder.identity.public_key:
        raise altered("its keys are not those of its authority")
    return folder


def _restore_rows(reader: ArchiveReader, header: BackupHeader, connection: Connection) -> None:
    for table, described in zip(ARCHIVED_TABLES, header.tables, strict=True):
        rows: list[Mapping[str, Any]] = []
        for _ in range(described.rows):
            rows.append(decode_row(table, reader.record(ROW, MAX_ROW_BYTES)))
            if len(rows) == BATCH_ROWS:
                insert_rows(connection, table, rows)
                rows = []
        insert_rows(connection, table, rows)


def _restore_content(reader: ArchiveReader, store: SealedStore, sha256: str) -> None:
    length = reader.begin(CONTENT, _MAX_CONTENT_BYTES) - _DIGEST_BYTES
    if length < 0 or reader.read(_DIGEST_BYTES).hex() != sha256:
        raise altered("its sealed files are not those that its rows name")
    path = store.path(sha256)
    with write_errors(path, _DISK_HINT):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as target:
            reader.copy(target, length)
            target.flush()
            os.fsync(target.fileno())
        sync_folder(path.parent)


def _require_sound(connection: Connection, header: BackupHeader, folder: AuthorityFolder) -> None:
    """Refuse a log that is not the one the back-up's checkpoint signs, down to each signature."""
    public_key = folder.identity.public_key
    note = header.checkpoint.encode("utf-8")
    try:
        checkpoint = open_checkpoint(note, NoteKey(folder.name, public_key))
    except NsmarkError as error:
        raise altered(str(error)) from error
    query = select(LOG_CHECKPOINTS.c.note).where(LOG_CHECKPOINTS.c.size == checkpoint.size)
    stored = connection.execute(query).scalar_one_or_none()
    is_last = log_size(connection) == checkpoint.size
    if not is_last or (checkpoint.size and (stored is None or bytes(stored) != note)):
        raise altered("its log is not the one that its checkpoint signs")
    _require_none(check_log(connection, folder.name, public_key))


def _require_none(problems: Iterator[str]) -> None:
    for problem in itertools.islice(problems, 1):
        raise altered(problem)


@contextlib.contextmanager
def _contradictions() -> Iterator[None]:
    """Turn what a database refuses, such as a second row of one name, into our error."""
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError) as error:
        raise altered("its rows contradict each other") from error
