"""Bytes as ±1 vectors and back, most significant bit first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import ConfigError

SignVector = NDArray[np.int64]


def bytes_to_signs(octets: bytes) -> SignVector:
    """Return one entry per bit: 1 becomes +1, 0 becomes −1.

    Args:
        octets: Any bytes.

    Returns:
        Shape (8 * len(octets),), the most significant bit of each byte first.
    """
    bits = np.unpackbits(np.frombuffer(octets, dtype=np.uint8))
    return bits.astype(np.int64) * 2 - 1


def signs_to_bytes(signs: SignVector) -> bytes:
    """Undo :func:`bytes_to_signs`; the length must be a multiple of 8."""
    if signs.ndim != 1 or len(signs) % 8:
        raise ConfigError("signs", signs.shape, "must be one row of a multiple of 8 entries")
    if not np.isin(signs, (-1, 1)).all():
        raise ConfigError("signs", "…", "every entry must be +1 or -1")
    return np.packbits(signs > 0).tobytes()
