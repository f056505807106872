"""Despreading: extractor outputs back to signature bits (paper: despread spectrum)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.core.bits import SignVector
from nsmark.errors import ConfigError, EvidenceError


def despread(
    outputs: NDArray[np.floating], spreading_code: SignVector, num_bits: int
) -> NDArray[np.int64]:
    """Read the signature bits out of extractor outputs.

    Each entry times its spreading code is +1 if it lies in (0.5, 1.5), −1 if in (−1.5, −0.5),
    else 0; a bit is the value most frequent among its copies, and a tie reads as 0.

    Args:
        outputs: Shape (num_texts, spread_factor * num_bits), or one row without the first axis.
        spreading_code: Shape (spread_factor * num_bits,), entries ±1.
        num_bits: Bits of the signature.

    Returns:
        Shape (num_texts, num_bits), or (num_bits,) for one row; entries −1, 0 or +1.
    """
    length = len(spreading_code)
    if num_bits < 1 or length % num_bits:
        raise ConfigError("num_bits", num_bits, f"must divide the code length {length}")
    if outputs.shape[-1] != length:
        raise EvidenceError(
            f"extractor outputs have {outputs.shape[-1]} entries, the code has {length}",
            "the extractor and the signature do not belong together",
        )
    demodulated = np.asarray(outputs, dtype=np.float64) * spreading_code
    copies = demodulated.reshape(*outputs.shape[:-1], length // num_bits, num_bits)
    positive = np.count_nonzero((copies > 0.5) & (copies < 1.5), axis=-2)
    negative = np.count_nonzero((copies > -1.5) & (copies < -0.5), axis=-2)
    neither = length // num_bits - positive - negative
    reads_plus = (positive > negative) & (positive > neither)
    reads_minus = (negative > positive) & (negative > neither)
    return np.asarray(reads_plus.astype(np.int64) - reads_minus.astype(np.int64))
