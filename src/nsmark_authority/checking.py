"""Everything an authority holds, checked against its log; the log against its signatures.

The functions yield sentences about what is wrong; none is good news.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from sqlalchemy import Connection, Row, Table, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from nsmark.errors import NsmarkError
from nsmark.identity import PublicKey
from nsmark_authority.archived_rows import count_rows
from nsmark_authority.errors import AuthorityError, NotFoundError
from nsmark_authority.fields import format_time, parse_time
from nsmark_authority.folder import (
    check_last_checkpoint,
    locked_folder,
    open_folder,
)
from nsmark_authority.manifest import MAX_MANIFEST_BYTES, Manifest
from nsmark_authority.sealing import SealedStore
from nsmark_authority.settings import DATABASE_FILE, AuthoritySettings
from nsmark_authority.statements import (
    Deposit,
    Dispute,
    Filing,
    OwnerStatement,
    Statement,
    open_statement,
    read_statement,
)
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.log import Log, all_entries, log_size
from nsmark_authority.storage.snapshots import snapshot
from nsmark_authority.storage.tables import (
    CONTENT_FILES,
    CONTENTS,
    HANDED_OVER,
    JOBS,
    LOG_CHECKPOINTS,
    LOG_ENTRIES,
    LOG_NODES,
    LOG_ROOTS,
    METADATA,
    VIEW_DISPUTES,
    VIEW_FILINGS,
    VIEW_PUBLICATIONS,
    VIEW_RULINGS,
    VIEWS,
)
from nsmark_authority.storage.views import apply_entry
from nsmark_authority.transparency import (
    Checkpoint,
    CompleteSubtree,
    Frontier,
    hash_leaf,
    open_checkpoint,
)
from nsmark_authority.transparency.checkpoint import NoteKey
from nsmark_authority.transparency.local_authority import LOCAL_POLICY
from nsmark_authority.transparency.timestamp import check_token, read_root_certificates

MAX_PROBLEMS = 100
"""That are told; one damaged disk must not fill another with reports."""

_PAGE_ROWS = 256
_Roots = dict[str, tuple[tuple[x509.Certificate, ...], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found."""

    authority: str
    num_entries: int
    num_contents: int
    """Sealed files that rows name."""

    problems: tuple[str, ...]
    """Sentences, at most :data:`MAX_PROBLEMS`; none if everything is as it must be."""


def require_authority(settings: AuthoritySettings) -> None:
    """Refuse a folder without an authority, instead of making one there.

    Raises:
        NotFoundError: There is none, or its database is elsewhere.
    """
    if not (settings.folder / "authority.json").is_file():
        raise NotFoundError(
            f"there is no authority in {settings.folder}", "give the folder of `nsmark serve`"
        )
    if settings.database_url is None and not (settings.folder / DATABASE_FILE).is_file():
        raise NotFoundError(
            f"there is no database in {settings.folder}",
            "name it with --database, or restore a back-up",
        )


def check_authority(settings: AuthoritySettings) -> CheckReport:
    """Check a whole authority, which may go on working; it is looked at as it was at one moment.

    Raises:
        NotFoundError: There is none.
        AuthorityError: The folder or the database cannot be opened.
    """
    require_authority(settings)
    with locked_folder(settings.folder):
        folder = open_folder(settings)
    with contextlib.closing(Database(settings.database)) as database:
        log = Log(database, folder.name, folder.identity)
        problems = list(_check_folder_files(settings.folder, log, folder.identity.public_key))
        with snapshot(database) as connection:
            num_entries = log_size(connection)
            found = itertools.chain(
                check_log(connection, folder.name, folder.identity.public_key),
                check_views(connection),
                check_jobs(connection),
                check_contents(connection, folder.store),
                check_givers(connection),
            )
            problems += itertools.islice(found, MAX_PROBLEMS - len(problems))
            num_contents = len(content_names(connection))
    return CheckReport(
        authority=folder.name,
        num_entries=num_entries,
        num_contents=num_contents,
        problems=tuple(problems),
    )


def content_names(connection: Connection) -> list[str]:
    """Return the digests of all sealed files that rows name, in order."""
    names = set(connection.execute(select(CONTENTS.c.sha256)).scalars())
    names |= set(connection.execute(select(CONTENT_FILES.c.sha256)).scalars())
    return sorted(names)


# --- The log. ---


def check_log(connection: Connection, name: str, public_key: PublicKey) -> Iterator[str]:
    """Check every entry, its time stamp, the tree and every checkpoint."""
    roots: _Roots = {}
    for row in connection.execute(select(LOG_ROOTS)).all():
        yield from _check_roots(row, roots)
    key = NoteKey(name, public_key)
    frontier = Frontier()
    num_nodes = 0
    for row in _entries(connection):
        if row.position != frontier.size:
            yield f"the log has no entry {frontier.size}"
            return
        yield from _check_entry(row, name, public_key, roots)
        frontier, completed = frontier.append(hash_leaf(bytes(row.entry)))
        num_nodes += len(completed)
        yield from _check_nodes(connection, completed)
        yield from _check_note(connection, key, frontier)
    if count_rows(connection, LOG_NODES) != num_nodes:
        yield "the stored tree has more nodes, or fewer, than the log"
    if count_rows(connection, LOG_CHECKPOINTS) != frontier.size:
        yield "there are more checkpoints, or fewer, than entries"


def _entries(connection: Connection) -> Iterator[Row[Any]]:
    for start in range(0, log_size(connection), _PAGE_ROWS):
        query = (
            select(LOG_ENTRIES)
            .where(LOG_ENTRIES.c.position.between(start, start + _PAGE_ROWS - 1))
            .order_by(LOG_ENTRIES.c.position)
        )
        yield from connection.execute(query).all()


def _check_roots(row: Row[Any], roots: _Roots) -> Iterator[str]:
    pem = row.pem.encode("utf-8")
    if hashlib.sha256(pem).hexdigest() != row.sha256:
        yield f"the root certificates {row.sha256[:16]}… are others than their digest says"
        return
    try:
        roots[row.sha256] = (read_root_certificates(pem), row.is_local)
    except NsmarkError as error:
        yield f"the root certificates {row.sha256[:16]}…: {error}"


def _check_entry(row: Row[Any], name: str, public_key: PublicKey, roots: _Roots) -> Iterator[str]:
    entry = bytes(row.entry)
    try:
        opened = open_statement(entry, authority=name, authority_key=public_key)
        if (opened.entry_id, opened.statement.kind) != (row.entry_id, row.kind):
            yield f"entry {row.position} stands under another id or kind than its own"
        if row.roots not in roots:
            yield f"entry {row.position} names root certificates that are not there"
            return
        trusted, is_local = roots[row.roots]
        stamp = check_token(bytes(row.token), hashlib.sha256(entry).digest(), trusted)
        if format_time(stamp.time) != row.time:
            yield f"entry {row.position} stands under another time than its time stamp's"
        if (stamp.policy == LOCAL_POLICY) != is_local:
            yield f"entry {row.position} has a time stamp of another kind than is said"
    except NsmarkError as error:
        yield f"entry {row.position}: {error}"


def _check_nodes(connection: Connection, completed: tuple[CompleteSubtree, ...]) -> Iterator[str]:
    for node in completed:
        query = select(LOG_NODES.c.hash).where(
            LOG_NODES.c.start == node.start, LOG_NODES.c.level == node.level
        )
        found = connection.execute(query).scalar_one_or_none()
        if found is None or bytes(found) != node.hash:
            yield f"the stored tree is not the log's at {node.start}/{node.level}"


def _check_note(connection: Connection, key: NoteKey, frontier: Frontier) -> Iterator[str]:
    query = select(LOG_CHECKPOINTS.c.note).where(LOG_CHECKPOINTS.c.size == frontier.size)
    note = connection.execute(query).scalar_one_or_none()
    if note is None:
        yield f"there is no checkpoint over {frontier.size} entries"
        return
    try:
        checkpoint = open_checkpoint(bytes(note), key)
    except NsmarkError as error:
        yield f"the checkpoint over {frontier.size} entries: {error}"
        return
    if checkpoint != Checkpoint(origin=key.name, size=frontier.size, root=frontier.root):
        yield f"the checkpoint over {frontier.size} entries is of another log"


def _check_folder_files(folder: Path, log: Log, public_key: PublicKey) -> Iterator[str]:
    try:
        check_last_checkpoint(folder, log.checkpoint)
    except NsmarkError as error:
        yield f"last.checkpoint: {error}"
    try:
        if PublicKey.load(folder / "signing.pub") != public_key:
            yield "signing.pub is not the public half of signing.pem"
    except NsmarkError as error:
        yield f"signing.pub: {error}"


# --- The views. ---


def check_views(connection: Connection) -> Iterator[str]:
    """Play the log into empty tables, and compare them with those that are there."""
    with tempfile.TemporaryDirectory(prefix="nsmark-check-") as folder:
        engine = create_engine(f"sqlite:///{folder}/views.db")
        try:
            with engine.begin() as scratch:
                METADATA.create_all(scratch, tables=list(VIEWS))
                try:
                    for entry in all_entries(connection):
                        apply_entry(scratch, entry, read_statement(entry.entry))
                except (NsmarkError, SQLAlchemyError) as error:
                    yield f"the log cannot be played again: {_first_line(error)}"
                    return
                for table in VIEWS:
                    yield from _compare(connection, scratch, table)
        finally:
            engine.dispose()


def _compare(connection: Connection, scratch: Connection, table: Table) -> Iterator[str]:
    query = select(table).order_by(table.c.position).execution_options(yield_per=_PAGE_ROWS)
    there, expected = connection.execute(query), scratch.execute(query)
    try:
        for found, right in itertools.zip_longest(there, expected):
            if found is None or right is None or tuple(found) != tuple(right):
                place = (found or right).position
                yield f"{table.name} is not what the log says, from entry {place} on"
                return
    finally:
        there.close()
        expected.close()


def _first_line(error: Exception) -> str:
    if isinstance(error, SQLAlchemyError):
        return type(error).__name__  # its text would hold the statement's values
    return str(error)


# --- Jobs. ---


def check_jobs(connection: Connection) -> Iterator[str]:
    """Look for filings and disputes that wait, but for nobody."""
    for table, state, kind in (
        (VIEW_FILINGS, "waiting", "admission"),
        (VIEW_DISPUTES, "open", "dispute"),
    ):
        is_its_job = (JOBS.c.subject == table.c.entry_id) & (JOBS.c.kind == kind)
        query = (
            select(table.c.position)
            .outerjoin(JOBS, is_its_job)
            .where(table.c.state == state, JOBS.c.job_id.is_(None))
            .order_by(table.c.position)
        )
        for position in connection.execute(query).scalars().all():
            yield f"there is no job for entry {position}, which waits for its {kind}"


# --- Sealed content. ---


def check_contents(connection: Connection, store: SealedStore) -> Iterator[str]:
    """Unseal everything that rows name, once, and look for what the log needs."""
    sizes = dict(connection.execute(select(CONTENT_FILES.c.sha256, CONTENT_FILES.c.bytes)).all())
    manifests = {}
    for row in connection.execute(select(CONTENTS).order_by(CONTENTS.c.sha256)).all():
        if row.is_folder:
            manifests[row.sha256] = row.bytes
        else:
            sizes[row.sha256] = row.bytes
    for sha256 in content_names(connection):
        try:
            num_bytes = unseal(store, sha256)
            if sha256 in sizes and sizes[sha256] != num_bytes:
                yield f"the content {sha256[:16]}… has another size than its row says"
            if sha256 in manifests:
                yield from _check_folder(connection, store, sha256, manifests[sha256])
        except NsmarkError as error:
            yield f"content {sha256[:16]}…: {error}"
    for table, column in (
        (VIEW_FILINGS, VIEW_FILINGS.c.content_sha256),
        (VIEW_PUBLICATIONS, VIEW_PUBLICATIONS.c.content_sha256),
        (VIEW_DISPUTES, VIEW_DISPUTES.c.content_sha256),
        (VIEW_RULINGS, VIEW_RULINGS.c.report_sha256),
    ):
        query = (
            select(table.c.position, column)
            .outerjoin(CONTENTS, CONTENTS.c.sha256 == column)
            .where(column.is_not(None), CONTENTS.c.sha256.is_(None))
            .order_by(table.c.position)
        )
        for position, sha256 in connection.execute(query).all():
            yield f"the content {sha256[:16]}… of entry {position} is not there"


def unseal(store: SealedStore, sha256: str) -> int:
    """Return the size of a content, after all of it was read and is what its name says."""
    digest, size = hashlib.sha256(), 0
    for chunk in store.chunks(sha256):
        digest.update(chunk)
        size += len(chunk)
    if digest.hexdigest() != sha256:
        raise AuthorityError("it is sealed under another name than its own", "restore a back-up")
    return size


def _check_folder(
    connection: Connection, store: SealedStore, sha256: str, num_bytes: int
) -> Iterator[str]:
    manifest = Manifest.parse(store.read(sha256, MAX_MANIFEST_BYTES))
    columns = CONTENT_FILES.c
    query = select(columns.name, columns.bytes, columns.sha256).where(columns.content == sha256)
    rows = {tuple(row) for row in connection.execute(query)}
    if rows != {(file.name, file.bytes, file.sha256) for file in manifest.files}:
        yield f"the folder {sha256[:16]}… has other files than its manifest says"
    if manifest.total_bytes != num_bytes:
        yield f"the folder {sha256[:16]}… has another size than its row says"


# --- Who handed content over. ---


@dataclass(frozen=True, slots=True)
class _Announced:
    """The content that an owner's statement announces."""

    giver: str
    """Fingerprint of the signer's key."""

    sha256: str
    num_bytes: int
    is_folder: bool


def check_givers(connection: Connection) -> Iterator[str]:
    """Compare who handed over which content with what the entries announce: rulings rest on it."""
    columns = HANDED_OVER.c
    query = (
        select(
            HANDED_OVER,
            LOG_ENTRIES.c.position,
            LOG_ENTRIES.c.entry,
            LOG_ENTRIES.c.time.label("entry_time"),
            CONTENTS.c.is_folder,
        )
        .outerjoin(LOG_ENTRIES, LOG_ENTRIES.c.entry_id == columns.entry_id)
        .outerjoin(CONTENTS, CONTENTS.c.sha256 == columns.content)
        .order_by(columns.entry_id)
        .execution_options(yield_per=_PAGE_ROWS)
    )
    rows = connection.execute(query)
    try:
        for row in rows:
            yield from _check_giver(row)
    finally:
        rows.close()


def _check_giver(row: Row[Any]) -> Iterator[str]:
    if row.position is None:
        yield f"the log has no entry {row.entry_id[:16]}…, with which content was handed over"
        return
    try:
        announced = _announced(read_statement(bytes(row.entry)))
    except NsmarkError as error:
        yield f"the content of entry {row.position} fits nothing: {error}"
        return
    if announced is None:
        yield f"entry {row.position} announces no content, but some was handed over with it"
        return
    what = f"the content of entry {row.position}"
    if row.fingerprint != announced.giver:
        yield f"{what} stands under another giver than its signer"
    if row.content != announced.sha256:
        yield f"{what} is another content than it announces"
    elif row.is_folder is None:
        yield f"{what} was handed over and is not there"
    elif row.is_folder != announced.is_folder:
        yield f"{what} is kept as another kind than it announces"
    if row.bytes != announced.num_bytes:
        yield f"{what} stands under another size than it announces"
    yield from _check_giving_time(row, what)


def _check_giving_time(row: Row[Any], what: str) -> Iterator[str]:
    try:
        parse_time(row.time)
    except ValueError:
        yield f"{what} was handed over at what is no time"
        return
    # Content may come later than its announcement. Both are whole seconds, spelled alike.
    if row.time < row.entry_time:
        yield f"{what} was handed over at a time before its entry's"


def _announced(statement: Statement) -> _Announced | None:
    """Return what a statement announces; those of other kinds, and of the authority, nothing."""
    if not isinstance(statement, OwnerStatement):
        return None
    content: tuple[str | None, int | None, bool]
    match statement:
        case Filing():
            content = statement.content_sha256, statement.content_bytes, False
        case Deposit():
            is_folder = statement.what == "model"
            content = statement.content_sha256, statement.content_bytes, is_folder
        case Dispute():
            suspect = statement.suspect
            content = suspect.content_sha256, suspect.content_bytes, suspect.kind == "model"
        case _:
            return None
    sha256, num_bytes, is_folder = content
    if sha256 is None or num_bytes is None:
        return None  # an endpoint is the suspect
    return _Announced(statement.signer().fingerprint, sha256, num_bytes, is_folder)
