"""WatermarkKey ↔ bytes: a safetensors container, sealed by the claim's key.

The container is written and read here rather than by the safetensors library for two reasons:
the library orders its metadata at random, so equal keys would get unequal bytes; and a reader of
hostile files must bound every size before it allocates. The library opens what we write (tested).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import rfc8785

from nsmark.errors import InputError, KeyFileError
from nsmark.identity.claim import parse_json_object
from nsmark.identity.signing import parse_hex
from nsmark.keyfile.digest import TENSOR_DTYPE, Array, tensor_bytes
from nsmark.keyfile.document import parse_document
from nsmark.keyfile.schema import WatermarkKey, assemble, check_claim, check_shapes

MAX_HEADER_BYTES = 64 << 20
_MAX_NUMBER = 1 << 40
_PICKLE_OR_ZIP = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK")


def encode_key(key: WatermarkKey) -> bytes:
    """Return the bytes of a key file; equal keys give equal bytes.

    Raises:
        KeyFileError: The key is not sealed, or so made that no reader would accept it.
    """
    if not key.has_valid_seal():
        raise KeyFileError("the key is not sealed", "seal it with the claim's identity first")
    tensors = key.tensors()
    metadata = {"nsmark": key.document_bytes().decode("utf-8"), "seal": key.seal.hex()}
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name in sorted(tensors):
        end = offset + tensors[name].size * 4
        shape = list(tensors[name].shape)
        header[name] = {"dtype": TENSOR_DTYPE, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    content = _header_bytes(header) + b"".join(tensor_bytes(tensors[n]) for n in sorted(tensors))
    # The reader is stricter than the constructor: better no file than one that cannot be read.
    decode_key(io.BytesIO(content), len(content))
    return content


def decode_key(stream: BinaryIO, size: int) -> WatermarkKey:
    """Read a key of ``size`` bytes and check everything that can be checked without a model.

    The claim's signature comes first; then sizes are compared with the configuration, before
    any tensor is read; then the key must give back the very document it was read from.

    Raises:
        KeyFileError: Anything is not as it should be.
    """
    header, begin = _read_header(stream, size)
    metadata = header.get("__metadata__")
    if (
        not isinstance(metadata, dict)
        or sorted(metadata) != ["nsmark", "seal"]
        or not all(isinstance(value, str) for value in metadata.values())
    ):
        raise _damaged("its metadata is not that of a key")
    try:
        raw_document = parse_json_object(metadata["nsmark"], "key document")
        canonical = rfc8785.dumps(raw_document)
        seal = parse_hex(metadata["seal"])
    except (InputError, rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        raise _damaged(f"its document cannot be read ({error})") from error
    if canonical != metadata["nsmark"].encode("utf-8"):
        raise _damaged("its document is not in canonical form")
    document = parse_document(raw_document)
    signed = check_claim(document)
    spans = _check_spans(header, size - begin)
    check_shapes(document.configuration, {name: shape for _, _, name, shape in spans})
    key = assemble(document, signed, _read_tensors(stream, spans), seal)
    # A public key has more than one PEM spelling: only ours may stand in a file.
    if key.document_bytes() != canonical:
        raise _damaged("its document is not as nsmark writes it")
    if not key.has_valid_seal():
        raise KeyFileError(
            "the seal does not fit the content: the key file was altered after sealing",
            "get the owner's original file",
        )
    return key


def _header_bytes(header: Mapping[str, Any]) -> bytes:
    """Serialise a safetensors header: compact JSON, padded by spaces to a multiple of 8."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read_header(stream: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and where the tensors begin; it must be exactly what we would write.

    Only the order of its members is free, because other writers of the format choose theirs.
    """
    prefix = stream.read(8)
    if prefix[:2] in _PICKLE_OR_ZIP:
        raise _damaged("it looks like a pickle or zip archive, which is never opened")
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
        raise _damaged("it is truncated or no safetensors file")
    content = stream.read(length)
    try:
        header = parse_json_object(content.decode("utf-8"), "header")
        rewritten = _header_bytes(header)
    except (InputError, UnicodeError, RecursionError) as error:
        raise _damaged("its header cannot be read") from error
    if rewritten != prefix + content:
        raise _damaged("its header is not in the plain form")
    return header, 8 + length


_Span = tuple[int, int, str, tuple[int, ...]]


def _check_spans(header: Mapping[str, Any], body_size: int) -> list[_Span]:
    """Return the tensors by position; they must fill the body exactly."""
    found = {name: info for name, info in header.items() if name != "__metadata__"}
    spans = sorted(_describe_tensor(name, info) for name, info in found.items())
    position = 0
    for begin, end, _, _ in spans:
        if begin != position or end > body_size:
            raise _damaged("its tensors overlap, leave gaps or are cut off")
        position = end
    if position != body_size:
        raise _damaged("something follows its last tensor")
    return spans


def _describe_tensor(name: str, info: Any) -> _Span:
    if not isinstance(info, dict) or sorted(info) != ["data_offsets", "dtype", "shape"]:
        raise _damaged(f"tensor {name[:40]} is badly described")
    shape, offsets = info["shape"], info["data_offsets"]
    if (
        info["dtype"] != TENSOR_DTYPE
        or not isinstance(shape, list)
        or not isinstance(offsets, list)
        or not 1 <= len(shape) <= 2
        or len(offsets) != 2
        or not all(type(n) is int and 0 <= n <= _MAX_NUMBER for n in shape + offsets)
        or offsets[1] - offsets[0] != 4 * math.prod(shape)
    ):
        raise _damaged(f"tensor {name[:40]} has the wrong type or size")
    return offsets[0], offsets[1], name, tuple(shape)


def _read_tensors(stream: BinaryIO, spans: list[_Span]) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    for begin, end, name, shape in spans:
        content = stream.read(end - begin)
        if len(content) != end - begin:
            raise _damaged("it is cut off")
        tensors[name] = np.frombuffer(content, dtype="<f4").astype(np.float32).reshape(shape)
    return tensors


def _damaged(why: str) -> KeyFileError:
    return KeyFileError(
        f"this is no intact key file: {why}", "get the owner's original file (*.nsmark)"
    )
