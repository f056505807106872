"""Model folders that strangers upload: looked through before any library opens them.

An upload is a few named files: JSON, vocabularies and safetensors weights, flat or in the numbered
sub-folders of sentence-transformers. Names, sizes and every safetensors header are checked here, in
plain Python and with bounds; nothing that could hold code is let in. :func:`check_upload` needs no
torch and is for whoever receives the files; :func:`check_network` is for the worker, which opens
the model afterwards.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nsmark.errors import FileAccessError, InputError, MissingExtraError, ModelError
from nsmark.identity import parse_json_object
from nsmark.models.families import FAMILIES
from nsmark.models.folder import FolderKind, describe_folder, model_digest, read_json

_INDEX = "model.safetensors.index.json"
_WEIGHTS = re.compile(r"model(?:-[0-9]{5}-of-[0-9]{5})?\.safetensors")
_SMALL_FILES = {
    "config.json": 1 << 20,
    "generation_config.json": 1 << 20,
    "tokenizer_config.json": 2 << 20,
    "special_tokens_map.json": 1 << 20,
    "added_tokens.json": 2 << 20,
    "modules.json": 64 << 10,
    "sentence_bert_config.json": 64 << 10,
    "config_sentence_transformers.json": 256 << 10,
    _INDEX: 8 << 20,
}
# Read by the tokenizers library, in Rust; here only their size counts.
_VOCABULARIES = {
    "tokenizer.json": 64 << 20,
    "vocab.txt": 16 << 20,
    "vocab.json": 16 << 20,
    "merges.txt": 16 << 20,
}
_FOLDER = re.compile(r"[0-9]_(?:Transformer|Pooling|Dense|Normalize)")
_REASONS = {
    ".bin": "weights in a pickle can run code; save the model with safetensors",
    ".pt": "weights in a pickle can run code; save the model with safetensors",
    ".pth": "weights in a pickle can run code; save the model with safetensors",
    ".ckpt": "weights in a pickle can run code; save the model with safetensors",
    ".pkl": "a pickle can run code; save the model with safetensors",
    ".py": "code is not run; only models that transformers itself knows can be uploaded",
    ".model": "save the tokenizer as tokenizer.json",
    ".h5": "save the model with safetensors",
    ".msgpack": "save the model with safetensors",
    ".gguf": "save the model with safetensors",
    ".onnx": "save the model with safetensors",
}
_LEAVE_OUT = (
    "leave it out: a model folder needs config.json, the tokenizer's files and *.safetensors"
)
_SUB_FOLDERS = "only sub-folders of sentence-transformers are let in, such as 1_Pooling"
# Settings that make transformers load code, other files or other formats.
_FORBIDDEN_SETTING = re.compile(
    r"auto_map|custom_.*|.*_file|.*attn_implementation.*|.*experts_implementation.*|"
    r"quantization_config|compression_config|transformers_weights|trust_remote_code|use_kernels|"
    r"base_model_name_or_path|.*backbone.*"
)
_MAX_NUMBER = 1 << 21
_MAX_LAYERS = 1000
_MAX_NESTING = 16
_MAX_HEADER_BYTES = 4 << 20
_MAX_TENSOR_BYTES = 1 << 44
_MAX_RANK = 8
_MAX_TENSOR_NAME = 300
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
_SPARE_NUMBERS = 64_000_000
"""Of weights and tables that a network may have beside those in its files: 256 MB."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """How large an upload may be."""

    max_files: int = 64
    max_file_bytes: int = 8 << 30
    max_total_bytes: int = 16 << 30


@dataclass(frozen=True, slots=True)
class UploadedModel:
    """A folder whose files are what they say."""

    path: Path
    kind: FolderKind
    model_type: str
    transformer_path: Path
    files: Mapping[str, str]
    """SHA-256 of every file, by name."""
    total_bytes: int
    num_weights: int
    """Numbers in all tensors together."""
    model_digest: str
    """Of the tensors alone, as keys name their model."""

    @property
    def digest(self) -> str:
        """SHA-256 over names and digests of all files, each name after its length."""
        digest = hashlib.sha256(b"nsmark/upload/1\0")
        for name in sorted(self.files):
            digest.update(len(name).to_bytes(8, "big") + name.encode())
            digest.update(bytes.fromhex(self.files[name]))
        return digest.hexdigest()


def check_upload_name(name: str) -> str:
    """Return a file's name in an upload if files of that name are let in.

    Args:
        name: Relative, with ``/`` before a file of a sub-folder.

    Raises:
        ModelError: Not such a name.
    """
    _name_limit(name, UploadLimits())
    return name


def wanted_files(folder: Path) -> list[str]:
    """Return which files of a model folder to upload; model cards and the like stay behind."""
    names = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and _is_wanted(name):
            names.append(name)
    return names


def check_upload(folder: Path, limits: UploadLimits | None = None) -> UploadedModel:
    """Look through an uploaded folder.

    Raises:
        ModelError: Something in it has no place there, is too large or malformed.
        FileAccessError: It cannot be read.
    """
    limits = limits or UploadLimits()
    sizes = _list_files(folder, limits)
    for name in sizes:
        if name.rsplit("/", 1)[-1] in _SMALL_FILES:
            _check_settings(folder / name, name)
    tensors: dict[str, dict[str, int]] = {}
    for name in sizes:
        if name.endswith(".safetensors"):
            tensors[name] = check_safetensors(folder / name, name)
    _check_indices(folder, sizes, tensors)
    try:
        found = describe_folder(folder)
        digest = model_digest(folder)
    except InputError as error:
        raise ModelError(f"the upload is no model: {error}", error.hint) from error
    if found.model_type not in FAMILIES:
        raise ModelError(
            f"models of family {found.model_type[:40]!r} are not opened here",
            f"known: {', '.join(sorted(FAMILIES))}; others can be measured behind an endpoint",
        )
    return UploadedModel(
        path=folder,
        kind=found.kind,
        model_type=found.model_type,
        transformer_path=found.transformer_path,
        files={name: _sha256(folder / name) for name in sorted(sizes)},
        total_bytes=sum(sizes.values()),
        num_weights=sum(count for each in tensors.values() for count in each.values()),
        model_digest=digest,
    )


def check_safetensors(path: Path, name: str) -> dict[str, int]:
    """Return how many numbers each tensor of a safetensors file has; they must fill it exactly.

    Args:
        path: The file; nothing but its header is read.
        name: How errors call it.

    Raises:
        ModelError: Its header is malformed or too large.
        FileAccessError: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            begin, header = _read_header(stream, name, size)
    except OSError as error:
        raise FileAccessError(
            f"cannot read {name}: {error.strerror or error}", "upload it again"
        ) from error
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _malformed(name, "its metadata is not made of texts")
    spans = sorted(_span(name, tensor, info) for tensor, info in header.items())
    position = 0
    for first, last, _, _ in spans:
        if first != position:
            raise _malformed(name, "its tensors overlap or leave gaps")
        position = last
    if not spans or position != size - begin:
        raise _malformed(name, "its tensors do not fill it")
    return {tensor: count for _, _, tensor, count in spans}


def check_network(model: UploadedModel) -> None:
    """Refuse a configuration that asks for more weights than were uploaded (torch).

    A few numbers in config.json can ask for any amount of memory. The network is laid out without
    allocating any of it, and counted.

    Raises:
        ModelError: It cannot be laid out, or is larger than its files.
    """
    try:
        import torch
        from transformers import AutoConfig, AutoModel

        from nsmark.models.quiet import quiet_transformers
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    try:
        with quiet_transformers(), torch.device("meta"):
            config = AutoConfig.from_pretrained(
                model.transformer_path, local_files_only=True, trust_remote_code=False
            )
            network: Any = AutoModel.from_config(config, trust_remote_code=False)
    except Exception as error:  # a hostile configuration makes transformers raise anything
        raise ModelError(
            "the uploaded config.json describes no network that can be opened",
            "upload the folder as transformers saved it",
        ) from error
    asked = sum(each.numel() for each in (*network.parameters(), *network.buffers()))
    if asked > model.num_weights + _SPARE_NUMBERS:
        raise ModelError(
            f"config.json asks for {asked:,} weights, the files hold {model.num_weights:,}",
            "upload the folder as transformers saved it",
        )


def _is_wanted(name: str) -> bool:
    try:
        check_upload_name(name)
    except ModelError:
        return False
    return True


def _name_limit(name: str, limits: UploadLimits) -> int:
    """Return how large a file of this name may be."""
    *folders, base = name.split("/")
    if len(folders) > 1 or not all(_FOLDER.fullmatch(folder) for folder in folders):
        raise _out_of_place(name)
    if _WEIGHTS.fullmatch(base):
        return limits.max_file_bytes
    limit = _SMALL_FILES.get(base) or _VOCABULARIES.get(base)
    if limit is None:
        suffix = os.path.splitext(base)[1].lower()
        raise _out_of_place(name, _REASONS.get(suffix, _LEAVE_OUT))
    return min(limit, limits.max_file_bytes)


def _list_files(folder: Path, limits: UploadLimits) -> dict[str, int]:
    """Return the size of every file by name; each is a plain file of its own."""
    sizes: dict[str, int] = {}
    total = 0
    for name, status in _walk(folder):
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{name[:80]!r} is no plain file", "upload the file itself")
        limit = _name_limit(name, limits)
        sizes[name] = status.st_size
        total += status.st_size
        if status.st_size > limit:
            raise ModelError(
                f"{name} has {status.st_size:,} bytes, {limit:,} are allowed", "upload less"
            )
        if len(sizes) > limits.max_files or total > limits.max_total_bytes:
            raise ModelError(
                f"more than {limits.max_files} files or {limits.max_total_bytes:,} bytes",
                "upload one model alone",
            )
    return sizes


def _walk(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if prefix or not _FOLDER.fullmatch(entry.name):
                        raise _out_of_place(name)
                    yield from _walk(Path(entry.path), f"{name}/")
                else:
                    yield name, entry.stat(follow_symlinks=False)
    except OSError as error:
        raise FileAccessError(
            f"cannot look into {folder.name}: {error.strerror or error}", "upload it again"
        ) from error


def _check_settings(path: Path, name: str) -> None:
    """Refuse a JSON file that is none, or that makes the library load something else."""
    try:
        document = read_json(path)
    except InputError as error:
        raise ModelError(f"{name} cannot be read: it is no JSON", error.hint) from error
    base = name.rsplit("/", 1)[-1]
    if base in (_INDEX, "added_tokens.json"):
        return  # their keys are names of weights and tokens
    for setting, value in _settings(document, name):
        if _FORBIDDEN_SETTING.fullmatch(setting.lower()) and value not in (None, {}):
            raise ModelError(
                f"{name} sets {setting[:40]!r}, which is not let in",
                "code, other files and quantised formats are not loaded; remove the setting",
            )
        if base == "config.json" and type(value) is int:
            most = _MAX_LAYERS if "layer" in setting.lower() else _MAX_NUMBER
            if abs(value) > most:
                raise ModelError(
                    f"{name} sets {setting[:40]!r} to more than {most:,}", "no model is so large"
                )


def _settings(document: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Return every setting of a document, at any depth."""
    if depth > _MAX_NESTING:
        raise ModelError(f"{name} is nested too deeply", "upload the folder as it was saved")
    if isinstance(document, dict):
        for setting, value in document.items():
            yield str(setting), value
            # Words of a vocabulary may have any name.
            if setting not in ("added_tokens_decoder", "label2id", "id2label", "prompts"):
                yield from _settings(value, name, depth + 1)
    elif isinstance(document, list):
        for value in document:
            if type(value) is int:
                yield "", value
            else:
                yield from _settings(value, name, depth + 1)


def _read_header(stream: BinaryIO, name: str, size: int) -> tuple[int, dict[str, Any]]:
    prefix = stream.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
        raise _malformed(name, "its header is too large, or cut off")
    content = stream.read(length)
    if len(content) != length or content[:1] != b"{":
        raise _malformed(name, "its header is cut off, or no JSON")
    try:
        return 8 + length, parse_json_object(content.decode("utf-8"), "header")
    except (InputError, UnicodeError) as error:
        raise _malformed(name, "its header cannot be read") from error


def _span(name: str, tensor: str, info: Any) -> tuple[int, int, str, int]:
    """Return first and last byte, name and count of a tensor."""
    if not isinstance(info, dict) or sorted(info) != ["data_offsets", "dtype", "shape"]:
        raise _malformed(name, "a tensor is badly described")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if (
        len(tensor) > _MAX_TENSOR_NAME
        or not isinstance(dtype, str)
        or dtype not in _ITEM_BYTES
        or not isinstance(shape, list)
        or len(shape) > _MAX_RANK
        or not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(type(n) is int and 0 <= n <= _MAX_TENSOR_BYTES for n in (*shape, *offsets))
    ):
        raise _malformed(name, "a tensor has an unknown type or an impossible size")
    count = math.prod(shape)
    if offsets[1] - offsets[0] != count * _ITEM_BYTES[dtype]:
        raise _malformed(name, "a tensor's bytes are not what its shape takes")
    return offsets[0], offsets[1], tensor, count


def _check_indices(
    folder: Path, sizes: Mapping[str, int], tensors: Mapping[str, Mapping[str, int]]
) -> None:
    """Refuse a list of weights that names other files, or tensors that are not in them."""
    for index in (name for name in sizes if name.rsplit("/", 1)[-1] == _INDEX):
        document = read_json(folder / index)
        places = document.get("weight_map") if isinstance(document, dict) else None
        if not isinstance(places, dict):
            raise ModelError(f"{index} lists no weights", "upload the folder as it was saved")
        prefix = index[: -len(_INDEX)]
        for tensor, file in places.items():
            if not isinstance(file, str) or tensor not in tensors.get(f"{prefix}{file}", {}):
                raise ModelError(
                    f"{index} names weights that were not uploaded", "upload all files of the model"
                )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise FileAccessError(
            f"cannot read {path.name}: {error.strerror or error}", "upload it again"
        ) from error


def _out_of_place(name: str, hint: str = _SUB_FOLDERS) -> ModelError:
    return ModelError(f"{name[:80]!a} has no place in an upload", hint)


def _malformed(name: str, why: str) -> ModelError:
    return ModelError(f"{name} is no valid safetensors file: {why}", "upload the file as saved")
