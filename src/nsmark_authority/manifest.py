"""A folder's content as one digest: the manifest of its files.

A single file, such as a key file, is named by its own SHA-256. A folder is named by the SHA-256 of
its manifest: canonical JSON with name, size and SHA-256 of every file, in the order of names.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from nsmark.errors import FileAccessError, InputError
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import Count, Digest, Record, parse_canonical

MANIFEST_FORMAT: Final = "nsmark/manifest/1"
MAX_FILES = 512
MAX_MANIFEST_BYTES = 256 * 1024
_MAX_NAME_CHARACTERS = 200
_CHUNK_BYTES = 1 << 20
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def _check_name(name: str) -> str:
    # No part begins with a dot, so none is "..", and nothing is hidden.
    if not all(_PART.fullmatch(part) for part in name.split("/")):
        raise ValueError("must be a plain relative path of letters, digits, '.', '_' and '-'")
    return name


FileName = Annotated[str, Field(max_length=_MAX_NAME_CHARACTERS), AfterValidator(_check_name)]


class ManifestFile(Record):
    """One file of a folder."""

    name: FileName
    """Path inside the folder, parts joined by slashes."""

    bytes: Count
    sha256: Digest


class Manifest(Record):
    """The files of a folder; its digest names the folder's content."""

    format: Literal["nsmark/manifest/1"] = MANIFEST_FORMAT
    files: Annotated[
        tuple[ManifestFile, ...], Field(min_length=1, max_length=MAX_FILES, strict=False)
    ]

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        names = [file.name for file in self.files]
        if names != sorted(set(names)):
            raise ValueError("files must stand in the order of their names, each once")
        folders = {name[: match.start()] for name in names for match in re.finditer("/", name)}
        if folders & set(names):
            raise ValueError("a name cannot be that of a file and of a folder")
        return self

    @classmethod
    def parse(cls, content: bytes) -> Manifest:
        """Read a manifest.

        Raises:
            TransparencyError: No manifest, or not in canonical form.
        """
        members = parse_canonical(content, "manifest", MAX_MANIFEST_BYTES)
        return cls.from_members(members, "manifest")

    @classmethod
    def of_files(cls, files: list[ManifestFile]) -> Manifest:
        """Return the manifest of files in any order.

        Raises:
            TransparencyError: None, too many, or two of one name.
        """
        ordered = sorted((file.to_members() for file in files), key=lambda file: str(file["name"]))
        return cls.from_members({"format": MANIFEST_FORMAT, "files": ordered}, "manifest")

    @classmethod
    def of_folder(cls, folder: Path) -> Manifest:
        """Read every file of a folder and return its manifest; hidden files are left out.

        Raises:
            FileAccessError: The folder or a file cannot be read.
            InputError: A name is none that can be handed over, or there are too many files.
        """
        found: list[ManifestFile] = []
        try:
            for root, folders, names in os.walk(folder):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                for name in sorted(name for name in names if not name.startswith(".")):
                    found.append(_describe(Path(root) / name, folder))
                    if len(found) > MAX_FILES:
                        raise InputError(
                            f"{folder} holds more than {MAX_FILES} files",
                            "give the folder of one model",
                        )
        except OSError as error:
            raise FileAccessError(
                f"cannot read {folder}: {error.strerror or error}", "check the path"
            ) from error
        if not found:
            raise FileAccessError(f"there are no files in {folder}", "check the path")
        return cls.of_files(found)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the manifest: the name of the folder's content."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


def _describe(path: Path, folder: Path) -> ManifestFile:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    members = {
        "name": path.relative_to(folder).as_posix(),
        "bytes": size,
        "sha256": digest.hexdigest(),
    }
    try:
        return ManifestFile.from_members(members, "file")
    except TransparencyError as error:
        raise InputError(
            f"{path.name!r} is no name for a file that is handed over",
            "rename it: letters, digits, '.', '_' and '-'",
        ) from error
