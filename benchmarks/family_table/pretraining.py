"""Stand-ins learn from scratch what they would have come with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from family_table.run import Run
from family_table.seeds import SEED
from nsmark.embedding.batches import BatchOrder
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder


def pretrain(encoder: Encoder, run: Run, steps: int) -> None:
    """Train a model from scratch, at a rate that rises and falls."""
    rate, warmup = 1e-3, max(1, steps // 10)
    sequences = encoder.token_ids(run.material.paragraphs)
    rng = np.random.default_rng(SEED)
    lengths = [len(sequence) for sequence in sequences]
    order = BatchOrder(lengths, run.scale.pretraining_batch, SEED)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.01, fused=True)
    half = encoder.device.type == "cuda" and run.row.pretraining_autocasts
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(step / warmup, (steps + 1 - step) / (steps + 1 - warmup))
        batch = [sequences[index] for index in order.batch(step)]
        with torch.autocast(encoder.device.type, torch.bfloat16, enabled=half):
            loss = pretraining_loss(encoder, batch, rng)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()


def pretraining_loss(
    encoder: Encoder, sequences: Sequence[TokenIds], rng: np.random.Generator
) -> torch.Tensor:
    """Return the model's own loss and, where it is read at a mark, one for what stands there.

    Hidden words alone teach a model to use its first or last mark only after far more texts than
    there are here; until then its outputs are the same for every text, and there is nothing that a
    watermark could spare. So the words of the text are to be guessed from that output, too.
    """
    own = encoder.language_loss(sequences, rng)
    if encoder.family.objective == "causal":
        return own
    tokens = encoder.pad(sequences)
    scores = encoder(tokens) @ encoder.network.get_input_embeddings().weight.T
    words = torch.log_softmax(scores.float(), dim=1).gather(1, tokens.input_ids)
    return own - (words * tokens.attention_mask).sum() / tokens.attention_mask.sum()
