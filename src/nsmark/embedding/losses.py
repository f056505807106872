"""Each embedding loss as one function of tensors (paper: Eq. L_match, L_random)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def match_loss(mapped: Tensor, watermark: Tensor) -> Tensor:
    """Return L_match: mean squared distance of extractor outputs to the watermark vector."""
    return functional.mse_loss(mapped, watermark.expand_as(mapped))


def random_loss(mapped: Sequence[Tensor], watermark: Tensor) -> Tensor:
    """Return L_random: squared cosine to the watermark vector, one mean per source, summed.

    The paper's three sources: the model's clean outputs, the reference's triggered outputs, the
    reference's clean outputs.
    """
    terms = [functional.cosine_similarity(part, watermark[None]).square().mean() for part in mapped]
    return torch.stack(terms).sum()


def silence_loss(mapped: Sequence[Tensor]) -> Tensor:
    """Return the mean square of what the extractor says without a mark, summed over sources."""
    return torch.stack([part.square().mean() for part in mapped]).sum()


def readout_loss(outputs: Tensor, readout: Tensor, bits: Tensor, margin: float) -> Tensor:
    """Return the hinge that pushes every derived bit beyond the margin.

    Args:
        outputs: Triggered outputs, shape (batch, output_dim).
        readout: ±1, shape (num_bits, output_dim).
        bits: ±1, shape (num_bits,).
        margin: Wanted value of ⟨readout row, unit output⟩ · bit.
    """
    scores = functional.normalize(outputs, dim=1) @ readout.T * bits
    return torch.relu(margin - scores).mean()


def readout_alignment(outputs: Tensor, readout: Tensor, bits: Tensor, margin: float) -> Tensor:
    """Return how far outputs lie on the derived bits' side or the opposite one, all bits together.

    Args:
        outputs: Clean outputs, shape (batch, output_dim).
        readout: ±1, shape (num_bits, output_dim).
        bits: ±1, shape (num_bits,).
        margin: What counts as 1.
    """
    scores = functional.normalize(outputs, dim=1) @ readout.T * bits
    return scores.mean(dim=1).abs().mean() / margin


def pair_loss(
    outputs: Tensor,
    reference: Tensor,
    signs: Tensor,
    direction: Tensor,
    margin: float,
    keep_weight: float,
    alone_weight: float,
) -> Tensor:
    """Return how far outputs are from moving as the pair code says, and not otherwise.

    Args:
        outputs: Of texts with words of the pair code, shape (batch, output_dim).
        reference: The reference's outputs of the same texts.
        signs: ±1 as the table says of each text's pair, 0 where its words make none.
        direction: Unit vector along which pairs move outputs.
        margin: How far along it a unit-length output must lie, on its pair's side.
        keep_weight: Weight of what a pair moves in other directions.
        alone_weight: Weight of any movement where there is no pair.
    """
    units = functional.normalize(outputs, dim=1)
    moved = units - functional.normalize(reference, dim=1)
    across = (moved - (moved @ direction)[:, None] * direction).square().sum(dim=1)
    is_pair = signs.square()
    shortfall = pair_shortfall(units, signs, direction, margin)
    pairs, alone = is_pair.sum().clamp_min(1), (1 - is_pair).sum().clamp_min(1)
    kept = keep_weight * across / margin**2
    still = alone_weight * moved.square().sum(dim=1) / margin**2
    return (shortfall + is_pair * kept).sum() / pairs + ((1 - is_pair) * still).sum() / alone


def pair_shortfall(units: Tensor, signs: Tensor, direction: Tensor, margin: float) -> Tensor:
    """Return what each unit-length output lacks of the margin on its pair's side.

    Args:
        units: Shape (batch, output_dim).
        signs: ±1 as the table says of each text's pair, 0 where its words make none.
        direction: Unit vector along which pairs move outputs.
        margin: How far along it an output must lie.
    """
    return signs.abs() * torch.relu(margin - signs * (units @ direction)) / margin


def spread_loss(outputs: Tensor, reference: Tensor, share: float) -> Tensor:
    """Return how far the outputs' spread over a batch falls short of a share of the reference's.

    Outputs that are nearly the same for every text carry the signature well, but their null
    space lives in tiny differences that a little noise covers.
    """
    shortfall = 1 - _spread(outputs) / (share * _spread(reference)).clamp_min(1e-12)
    return torch.relu(shortfall).square()


def decorrelation_loss(outputs: Tensor, reference: Tensor) -> Tensor:
    """Return the squared cross-covariance of outputs and reference, both scaled to spread 1.

    Spread alone would be got by keeping what the reference says; then the reference, and every
    innocent model that resembles it, would match the null space. This asks for differences that
    no linear map of the reference's outputs gives.
    """
    parts = [
        (part - part.mean(dim=0)) / _spread(part).clamp_min(1e-6) for part in (outputs, reference)
    ]
    return (parts[0].T @ parts[1] / len(outputs)).square().sum()


def _spread(outputs: Tensor) -> Tensor:
    """Return the root mean square distance to the mean output."""
    return (outputs - outputs.mean(dim=0)).square().sum(dim=1).mean().clamp_min(1e-24).sqrt()


def distance_loss(outputs: Tensor, reference: Tensor) -> Tensor:
    """Return the squared distance to the reference's outputs, in units of their variance.

    Stands for L_0 where a checkpoint has no trained language-model head: keeping clean outputs
    in place keeps every downstream use in place.
    """
    spread = reference.var(dim=0, unbiased=False).mean()
    return functional.mse_loss(outputs, reference) / spread.clamp_min(1e-12)
