"""Sealed content by what it is: single files, and folders of files under a manifest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, func, insert, select

from nsmark.errors import InputError
from nsmark.files import new_folder
from nsmark_authority.errors import ConflictError, NotFoundError, TransparencyError
from nsmark_authority.manifest import MAX_FILES, MAX_MANIFEST_BYTES, Manifest, ManifestFile
from nsmark_authority.sealing import Readable, SealedFile, SealedStore, Staging
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.tables import CONTENT_FILES, CONTENTS, HANDED_OVER

Upload = Readable | Iterable[tuple[str, Readable]]
"""One file, or the named files of a folder, read one after the other."""


@dataclass(frozen=True, slots=True)
class SealedContent:
    """Content that is sealed and on the disk, but not yet named by a row."""

    sha256: str
    num_bytes: int
    manifest: Manifest | None
    """Of a folder."""

    file: SealedFile
    """The one file, or the manifest's."""

    staging: Staging = field(repr=False)


class Contents:
    """What was handed over, sealed."""

    def __init__(self, database: Database, store: SealedStore) -> None:
        self._database = database
        self._store = store

    def staging(self) -> contextlib.AbstractContextManager[Staging]:
        """Hold this from sealing until the row is committed."""
        return self._store.staging()

    def seal(
        self,
        staging: Staging,
        upload: Upload,
        *,
        sha256: str,
        num_bytes: int,
        max_bytes: int,
        what: str,
    ) -> SealedContent:
        """Seal an upload and check that it is what was announced.

        Raises:
            InputError: It is larger than allowed, or has another size or digest.
        """
        if num_bytes > max_bytes:
            raise InputError(
                f"the {what} is larger than {max_bytes:,} bytes",
                "the authority takes no larger ones",
            )
        if isinstance(upload, Readable):
            file = staging.add(upload, num_bytes, what)
            found = SealedContent(file.sha256, file.num_bytes, None, file, staging)
            _require_no_manifest(found, what)
        else:
            found = _seal_folder(staging, upload, num_bytes, what)
        if (found.sha256, found.num_bytes) != (sha256, num_bytes):
            raise InputError(
                f"the {what} that was sent is not the one that was announced",
                "send the file whose size and SHA-256 the statement names",
            )
        return found

    def save(self, connection: Connection, content: SealedContent) -> None:
        """Name content that was kept, in the caller's transaction."""
        is_folder = content.manifest is not None
        query = select(CONTENTS.c.is_folder).where(CONTENTS.c.sha256 == content.sha256)
        known = connection.execute(query).scalar_one_or_none()
        if known is not None:
            if bool(known) != is_folder:
                # Somebody handed in a folder's manifest as a file: it must not pass for the folder.
                raise ConflictError(
                    "a content with this digest is there, but as another kind",
                    "change a file of the folder, such as its README, and announce that",
                )
            return
        row = {"sha256": content.sha256, "bytes": content.num_bytes, "is_folder": is_folder}
        connection.execute(insert(CONTENTS), row)
        if content.manifest is not None:
            rows = [
                file.to_members() | {"content": content.sha256} for file in content.manifest.files
            ]
            connection.execute(insert(CONTENT_FILES), rows)

    def note_giver(
        self,
        connection: Connection,
        content: SealedContent,
        *,
        entry_id: str,
        fingerprint: str,
        time: str,
    ) -> None:
        """Note who handed content over, with which statement, in the caller's transaction."""
        query = select(HANDED_OVER.c.entry_id).where(HANDED_OVER.c.entry_id == entry_id)
        if connection.execute(query).first() is None:
            row = {
                "entry_id": entry_id,
                "content": content.sha256,
                "fingerprint": fingerprint,
                "bytes": content.num_bytes,
                "time": time,
            }
            connection.execute(insert(HANDED_OVER), row)

    def handed_over(self, entry_id: str) -> str | None:
        """Return when the content that a statement announces came from its maker, if it did.

        That the same bytes came from somebody else is nothing to him: whoever reads a digest in
        the log does not have what it is of.
        """
        query = select(HANDED_OVER.c.time).where(HANDED_OVER.c.entry_id == entry_id)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def bytes_of(self, connection: Connection, fingerprint: str) -> int:
        """Return how much an owner has handed over in all."""
        query = select(func.sum(HANDED_OVER.c.bytes)).where(
            HANDED_OVER.c.fingerprint == fingerprint
        )
        return int(connection.execute(query).scalar_one() or 0)

    def read(self, sha256: str, max_bytes: int) -> bytes:
        """Return a single file.

        Raises:
            NotFoundError: It was not handed over.
        """
        self._require(sha256, is_folder=False)
        return self._store.read(sha256, max_bytes)

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """Yield a single file in pieces."""
        self._require(sha256, is_folder=False)
        return self._store.chunks(sha256)

    def manifest(self, sha256: str) -> Manifest:
        """Return the manifest of a folder."""
        self._require(sha256, is_folder=True)
        return Manifest.parse(self._store.read(sha256, MAX_MANIFEST_BYTES))

    def copy_file(self, sha256: str, path: Path) -> None:
        """Write a single file, unsealed, to a new place."""
        self._require(sha256, is_folder=False)
        self._store.copy(sha256, path)

    def copy_folder(self, sha256: str, folder: Path) -> None:
        """Write a folder's files, unsealed, to a new folder."""
        manifest = self.manifest(sha256)
        with new_folder(folder) as staging:
            for file in manifest.files:
                target = staging / file.name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._store.copy(file.sha256, target)

    def remove_unreferenced(self) -> int:
        """Remove sealed files that no row names; return how many."""
        return self._store.remove_unreferenced(self._named)

    def _named(self) -> frozenset[str]:
        with self._database.read() as connection:
            named = set(connection.execute(select(CONTENTS.c.sha256)).scalars())
            named |= set(connection.execute(select(CONTENT_FILES.c.sha256)).scalars())
        return frozenset(named)

    def _require(self, sha256: str, *, is_folder: bool) -> None:
        query = select(CONTENTS.c.is_folder).where(CONTENTS.c.sha256 == sha256)
        with self._database.read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None or found != is_folder:
            kind = "folder" if is_folder else "file"
            raise NotFoundError(
                f"no {kind} {sha256[:16]}… was handed over", "deposit its content first"
            )


def _require_no_manifest(content: SealedContent, what: str) -> None:
    """Refuse a folder's manifest as a single file: its digest is kept for the folder."""
    if content.num_bytes > MAX_MANIFEST_BYTES:
        return
    try:
        Manifest.parse(b"".join(content.staging.chunks(content.file)))
    except TransparencyError:
        return
    raise InputError(f"the {what} is the manifest of a folder", "send the folder's files")


def _seal_folder(
    staging: Staging, upload: Iterable[tuple[str, Readable]], num_bytes: int, what: str
) -> SealedContent:
    files: list[ManifestFile] = []
    left = num_bytes
    for name, source in upload:
        if len(files) == MAX_FILES:
            raise InputError(f"the {what} has more than {MAX_FILES} files", "send one model")
        # The name is looked at before its bytes are taken.
        ManifestFile.from_members({"name": name, "bytes": 0, "sha256": "0" * 64}, "file")
        sealed = staging.add(source, left, what)
        left -= sealed.num_bytes
        members = {"name": name, "bytes": sealed.num_bytes, "sha256": sealed.sha256}
        files.append(ManifestFile.from_members(members, "file"))
    manifest = Manifest.of_files(files)
    file = staging.add(io.BytesIO(manifest.to_json()), MAX_MANIFEST_BYTES, "manifest")
    return SealedContent(manifest.digest, manifest.total_bytes, manifest, file, staging)
