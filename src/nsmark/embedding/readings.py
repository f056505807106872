"""Extraction rates of a batch, computed where its outputs are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def extraction_rate_of(mapped: Tensor, code: Tensor, bits: Tensor) -> Tensor:
    """Return the share of bits read rightly, as :func:`nsmark.core.extraction_rate` does.

    Args:
        mapped: Extractor outputs, shape (num_texts, copies · num_bits).
        code: Spreading code, ±1.
        bits: Signature bits, ±1.
    """
    votes = (mapped * code).view(len(mapped), -1, len(bits))
    for_plus = ((votes > 0.5) & (votes < 1.5)).sum(dim=1)
    for_minus = ((votes > -1.5) & (votes < -0.5)).sum(dim=1)
    undecided = votes.shape[1] - for_plus - for_minus
    plus = for_plus > torch.maximum(for_minus, undecided)
    minus = for_minus > torch.maximum(for_plus, undecided)
    return torch.where(bits > 0, plus, minus).float().mean()


def derived_rate_of(outputs: Tensor, readout: Tensor, bits: Tensor) -> Tensor:
    """Return the share of derived bits read rightly, as in :mod:`nsmark.core.extraction`."""
    scores = readout @ functional.normalize(outputs, dim=1).mean(dim=0)
    return (scores * bits > 0).float().mean()


def pair_rate_of(outputs: Tensor, direction: Tensor, signs: Tensor) -> Tensor:
    """Return the share of texts whose output lies on its pair's side."""
    return (outputs @ direction * signs > 0).float().mean()


def mean_cosine_of(first: Tensor, second: Tensor) -> Tensor:
    """Return the mean cosine between corresponding rows."""
    return functional.cosine_similarity(first, second, dim=1).mean()
