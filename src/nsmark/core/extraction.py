"""How much of the signature can be read from outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from nsmark.core.derive import readout_matrix, signature_bits, spreading_code
from nsmark.core.null_space import check_matrix
from nsmark.core.spread import despread
from nsmark.errors import EvidenceError


def extraction_rate(
    outputs: NDArray[np.floating],
    signature: bytes,
    num_bits: int = 256,
    spread_factor: int = 3,
) -> float:
    """Return the share of signature bits read rightly, averaged over texts (paper: WER).

    There is no p-value for it: the extractor was fitted to these bits.

    Args:
        outputs: Extractor outputs, shape (num_texts, spread_factor * num_bits) or one row.
        signature: The owner's signature.
        num_bits: Bits of the signature (paper: n).
        spread_factor: Copies of each bit (paper: k).
    """
    if not np.size(outputs):
        raise EvidenceError("there are no outputs to read", "measure at least one text")
    code = spreading_code(signature, num_bits * spread_factor)
    bits = despread(outputs, code, num_bits)
    return float(np.mean(bits == signature_bits(signature, num_bits)))


def _derived_matches(
    outputs: NDArray[np.floating], signature: bytes, num_bits: int
) -> NDArray[np.bool_]:
    values = check_matrix(outputs)
    readout = readout_matrix(signature, num_bits, values.shape[1])
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    # A zero output says nothing: it stays zero instead of becoming NaN.
    units = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    scores = readout @ units.mean(axis=0)
    matches: NDArray[np.bool_] = scores * signature_bits(signature, num_bits)[: len(scores)] > 0
    return matches


def derived_extraction_rate(
    outputs: NDArray[np.floating], signature: bytes, num_bits: int = 256
) -> float:
    """Return the share of bits that the readout derived from the signature reads rightly.

    Nothing on the verifier's side was fitted: an unrelated model scores ½.

    Args:
        outputs: Model outputs on triggered texts, shape (num_texts, output_dim).
        signature: The owner's signature.
        num_bits: Bits of the signature; min(num_bits, output_dim // 2) of them are read.
    """
    return float(np.mean(_derived_matches(outputs, signature, num_bits)))


def derived_p_value(outputs: NDArray[np.floating], signature: bytes, num_bits: int = 256) -> float:
    """Return the chance that fair coins match the derived bits at least as well."""
    matches = _derived_matches(outputs, signature, num_bits)
    return float(binom.sf(np.count_nonzero(matches) - 1, len(matches), 0.5))
