"""What an ONNX file refers to, read from its bytes before any runtime opens it.

An ONNX file is a protocol buffer. Weights may lie in other files ("external data"), named by a
path that the file's maker chose: here every such path is found and held against the folder. Only
the few fields that lead to a tensor are followed; weights themselves are stepped over.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nsmark.errors import FileAccessError, ModelError

MAX_MODEL_BYTES = 2 << 30
"""What a protocol buffer can hold; larger models keep their weights beside it."""
MAX_EXTERNAL_BYTES = 64 << 30
_MAX_FIELDS = 5_000_000
_MAX_DEPTH = 100  # protocol buffers' own limit

# Which fields of which message lead to tensors and nodes, by number (onnx.proto).
FOLLOWED: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {13: "StringStringEntryProto"},
}
_OP_TYPE = 4  # of NodeProto
_KEY, _VALUE = 1, 2  # of StringStringEntryProto


@dataclass(slots=True)
class OnnxReferences:
    """What was found in a model file."""

    locations: set[str] = field(default_factory=set)
    """Files that weights are read from."""
    operators: set[str] = field(default_factory=set)
    num_fields: int = 0


def check_onnx_file(path: Path) -> OnnxReferences:
    """Look through an ONNX file and refuse one that leads out of its folder.

    Raises:
        ModelError: No ONNX file, too large, or with weights outside its folder.
        FileAccessError: It cannot be read.
    """
    if not path.is_file():
        problem = "is not a file" if path.exists() else "does not exist"
        raise ModelError(f"{path} {problem}", "give the .onnx file of an exported model")
    try:
        size = path.stat().st_size
        if not 0 < size <= MAX_MODEL_BYTES:
            raise ModelError(
                f"{path} has {size:,} bytes", f"an ONNX file has 1 to {MAX_MODEL_BYTES:,}"
            )
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            found = read_references(content)
    except OSError as error:
        raise FileAccessError(
            f"cannot read {path}: {error.strerror or error}", "check the path"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} is no ONNX model: {error}", "the file is damaged, or of another format"
        ) from error
    _check_locations(path.parent, found.locations)
    return found


def read_references(content: bytes | mmap.mmap) -> OnnxReferences:
    """Walk the bytes of a model.

    Raises:
        ValueError: They are no protocol buffer of that kind.
    """
    found = OnnxReferences()
    _walk(content, 0, len(content), "ModelProto", 0, found)
    if not found.operators:
        raise ValueError("there are no operators in it")
    return found


def _check_locations(folder: Path, locations: set[str]) -> None:
    total = 0
    for location in sorted(locations):
        # onnxruntime takes a name with asterisks for an address in its own memory.
        if not location or "*" in location or "\0" in location or Path(location).is_absolute():
            raise _leads_outside(location)
        file = folder / location
        if not file.resolve().is_relative_to(folder.resolve()):
            raise _leads_outside(location)
        if not file.is_file():
            raise ModelError(
                f"the model's weights {location[:80]!r} are missing",
                "copy them beside the .onnx file",
            )
        total += file.stat().st_size
    if total > MAX_EXTERNAL_BYTES:
        raise ModelError(
            f"the model's weights have {total:,} bytes", f"at most {MAX_EXTERNAL_BYTES:,} are read"
        )


def _leads_outside(location: str) -> ModelError:
    return ModelError(
        f"the model takes its weights from outside its folder: {location[:80]!r}",
        "do not trust this model; if it is yours, copy the file itself (no link) into the folder",
    )


def _walk(
    content: bytes | mmap.mmap, start: int, end: int, kind: str, depth: int, found: OnnxReferences
) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError("its parts are nested too deeply")
    followed = FOLLOWED[kind]
    for number, begin, stop in _fields(content, start, end, found):
        child = followed.get(number)
        if child == "StringStringEntryProto":
            _note_location(content, begin, stop, found)
        elif child is not None:
            _walk(content, begin, stop, child, depth + 1, found)
        elif kind == "NodeProto" and number == _OP_TYPE:
            found.operators.add(content[begin:stop].decode())


def _note_location(content: bytes | mmap.mmap, start: int, end: int, found: OnnxReferences) -> None:
    entry = {
        number: content[begin:stop] for number, begin, stop in _fields(content, start, end, found)
    }
    if entry.get(_KEY) == b"location":
        found.locations.add(entry.get(_VALUE, b"").decode())


def _fields(
    content: bytes | mmap.mmap, start: int, end: int, found: OnnxReferences
) -> Iterator[tuple[int, int, int]]:
    """Yield (number, begin, end) of the length-delimited fields of a message."""
    while start < end:
        found.num_fields += 1
        if found.num_fields > _MAX_FIELDS:
            raise ValueError("it has too many parts")
        tag, start = _varint(content, start, end)
        wire = tag & 7
        if wire == 0:
            _, start = _varint(content, start, end)
        elif wire == 2:
            length, start = _varint(content, start, end)
            if length > end - start:
                raise ValueError("it ends too early")
            yield tag >> 3, start, start + length
            start += length
        elif wire in (1, 5):
            start += 8 if wire == 1 else 4
        else:
            raise ValueError("it holds a field of an unknown type")
    if start != end:
        raise ValueError("it ends too early")


def _varint(content: bytes | mmap.mmap, start: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while start < end and shift < 70:
        octet = content[start]
        start += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value, start
        shift += 7
    raise ValueError("it ends too early")
