"""What is handed over with a deposit or a dispute: a model folder or recorded outputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nsmark.errors import EvidenceError, FileAccessError, ModelError, UsageError
from nsmark.models.folder import model_digest
from nsmark.suspects.endpoint import parse_endpoint
from nsmark_authority.client.multipart import FilePart
from nsmark_authority.errors import TransparencyError
from nsmark_authority.manifest import Manifest, ManifestFile
from nsmark_authority.statements import Suspect
from nsmark_authority.uploads import check_safetensors, wanted_files

_CHUNK_BYTES = 1 << 20
_INTERFACES: dict[str, Literal["embeddings", "completions"]] = {
    "openai": "embeddings",
    "completions": "completions",
}
_FORMS = (
    "write openai:URL#model, completions:URL#model, recorded:FILE.safetensors or a model folder"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Files, and the digest that names them."""

    what: Literal["model", "recorded"]
    sha256: str
    num_bytes: int
    parts: tuple[FilePart, ...]
    model_digest: str | None = None


def read_content(path: Path) -> Content:
    """Look through a model folder or a file of recorded outputs.

    Of a folder only what an authority takes is handed over: settings, tokenizer, safetensors.

    Raises:
        ModelError: The folder holds no model.
        EvidenceError: The file is no safetensors file.
        FileAccessError: Something cannot be read.
    """
    return _read_folder(path) if path.is_dir() else _read_recorded(path)


def read_suspect(text: str) -> tuple[Suspect, Content | None]:
    """Read a suspect as ``verify`` takes it, and what must be handed over for it.

    Raises:
        UsageError: None that an authority can measure.
        ModelError: The folder holds no model.
        EvidenceError: The file is no safetensors file.
        FileAccessError: Something cannot be read.
    """
    scheme, found, rest = text.partition(":")
    if found and scheme in _INTERFACES:
        interface = _INTERFACES[scheme]
        endpoint = parse_endpoint(rest, interface)
        url = rest.partition("#")[0]
        return _suspect(kind="endpoint", interface=interface, url=url, model=endpoint.model), None
    if found and scheme == "onnx":
        raise UsageError("an authority opens no ONNX files", _FORMS)
    path = Path(rest if found and scheme in ("recorded", "hf", "st") else text)
    if (scheme == "recorded") == path.is_dir() or not path.exists():
        raise UsageError(f"{text[:80]!r} is no suspect that an authority measures", _FORMS)
    content = read_content(path)
    suspect = _suspect(
        kind=content.what, content_sha256=content.sha256, content_bytes=content.num_bytes
    )
    return suspect, content


def _suspect(**members: Any) -> Suspect:
    try:
        return Suspect.from_members(dict.fromkeys(Suspect.model_fields) | members, "suspect")
    except TransparencyError as error:
        raise UsageError(str(error), _FORMS) from error


def _read_folder(folder: Path) -> Content:
    try:
        names = wanted_files(folder)
    except OSError as error:
        raise FileAccessError(
            f"cannot read {folder}: {error.strerror or error}", "check the path"
        ) from error
    if not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{folder} holds no weights that an authority takes",
            "save the model with transformers, as safetensors",
        )
    files, parts = [], []
    for name in names:
        sha256, size = _hash(folder / name)
        members = {"name": name, "bytes": size, "sha256": sha256}
        files.append(ManifestFile.from_members(members, "file of the model"))
        parts.append(FilePart("files", name, folder / name, size))
    manifest = Manifest.of_files(files)
    return Content(
        what="model",
        sha256=manifest.digest,
        num_bytes=manifest.total_bytes,
        parts=tuple(parts),
        model_digest=model_digest(folder),
    )


def _read_recorded(path: Path) -> Content:
    try:
        check_safetensors(path, path.name)
    except ModelError as error:
        raise EvidenceError(
            f"{path} is no safetensors file of recorded outputs",
            "an authority reads no other format; save it with nsmark.suspects.save_recorded",
        ) from error
    sha256, size = _hash(path)
    parts = (FilePart("files", "recorded.safetensors", path, size),)
    return Content(what="recorded", sha256=sha256, num_bytes=size, parts=parts)


def _hash(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise FileAccessError(
            f"cannot read {path}: {error.strerror or error}", "check the path"
        ) from error
    return digest.hexdigest(), size
