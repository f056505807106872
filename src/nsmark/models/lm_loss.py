"""The language-model losses a checkpoint was pretrained with (paper: L_0).

Each takes the whole model with its head and a batch of clean texts. Randomness comes from a
generator of the caller's on the CPU, so that a run can be repeated on any device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from nsmark.models.encoder import Encoder, Tokens

_MASKED_SHARE = 0.15
_PREDICTED_SHARE = 1 / 6  # XLNet predicts one token in six
_IGNORED = -100


def lm_loss(encoder: Encoder, tokens: Tokens, generator: torch.Generator) -> Tensor:
    """Return the loss of the encoder's own family on a batch."""
    losses = {
        "masked": masked_lm_loss,
        "causal": causal_lm_loss,
        "permutation": permutation_lm_loss,
    }
    return losses[encoder.family.objective](encoder, tokens, generator)


def masked_lm_loss(encoder: Encoder, tokens: Tokens, generator: torch.Generator) -> Tensor:
    """Predict 15 % of the tokens: of these 80 % are masked, 10 % random, 10 % left as they are."""
    ids = tokens.input_ids.cpu()
    chosen = _choose(encoder, tokens, _MASKED_SHARE, generator)
    treatment = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(encoder.network.config.vocab_size, ids.shape, generator=generator)
    corrupted = torch.where(chosen & (treatment < 0.8), encoder.tokenizer.mask_token_id, ids)
    corrupted = torch.where(chosen & (treatment >= 0.9), random_ids, corrupted)
    return _loss(
        encoder,
        input_ids=corrupted,
        attention_mask=tokens.attention_mask,
        labels=torch.where(chosen, ids, _IGNORED),
    )


def causal_lm_loss(encoder: Encoder, tokens: Tokens, generator: torch.Generator) -> Tensor:
    """Predict each token from those before it."""
    labels = torch.where(tokens.attention_mask == 1, tokens.input_ids, _IGNORED)
    return _loss(
        encoder, input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, labels=labels
    )


def permutation_lm_loss(encoder: Encoder, tokens: Tokens, generator: torch.Generator) -> Tensor:
    """Predict one token in six, in a random order, from the rest and those before it (XLNet)."""
    ids = tokens.input_ids.cpu()
    chosen = _choose(encoder, tokens, _PREDICTED_SHARE, generator)
    order = torch.where(chosen, torch.rand(ids.shape, generator=generator), -1.0)
    # Position j is hidden from i if j is to be predicted and does not come before i.
    hidden = chosen[:, None, :] & (order[:, :, None] <= order[:, None, :])
    return _loss(
        encoder,
        input_ids=ids,
        attention_mask=tokens.attention_mask,
        perm_mask=hidden.float(),
        target_mapping=torch.eye(ids.shape[1]).expand(len(ids), -1, -1),
        labels=torch.where(chosen, ids, _IGNORED),
    )


def _choose(encoder: Encoder, tokens: Tokens, share: float, generator: torch.Generator) -> Tensor:
    """Choose ordinary tokens to predict, at least one in the batch."""
    ids, mask = tokens.input_ids.cpu(), tokens.attention_mask.cpu()
    special = torch.isin(ids, torch.tensor(sorted(set(encoder.tokenizer.all_special_ids))))
    ordinary = (mask == 1) & ~special
    chosen = (torch.rand(ids.shape, generator=generator) < share) & ordinary
    if not chosen.any():  # very short texts: a mean over nothing would be NaN
        candidates = (ordinary if ordinary.any() else mask == 1).nonzero()
        chosen[tuple(candidates[0])] = True
    return chosen


def _loss(encoder: Encoder, **inputs: Any) -> Tensor:
    on_device = {name: tensor.to(encoder.device) for name, tensor in inputs.items()}
    loss: Tensor = encoder.network(**on_device).loss
    return loss
