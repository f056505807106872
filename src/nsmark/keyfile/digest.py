"""The digest that names a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

KEY_FORMAT = "nsmark/key/1"
TENSOR_DTYPE = "F32"


def content_digest(document: bytes, tensors: Mapping[str, Array]) -> bytes:
    """Return SHA-256 over the document and every tensor, by name order.

    Every part is preceded by its length in 8 bytes, big-endian, so that no two keys have the
    same parts joined.
    """
    digest = hashlib.sha256(KEY_FORMAT.encode("ascii") + b"\x00")

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)

    add(document)
    for name in sorted(tensors):
        array = tensors[name]
        add(name.encode("utf-8"))
        add(TENSOR_DTYPE.encode("ascii"))
        add(json.dumps(list(array.shape), separators=(",", ":")).encode("ascii"))
        add(hashlib.sha256(tensor_bytes(array)).digest())
    return digest.digest()


def tensor_bytes(array: Array) -> bytes:
    """Return the little-endian bytes of a tensor, as the file holds them."""
    return np.ascontiguousarray(array, dtype="<f4").tobytes()
