"""The two players and their alternating training step."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from nsmark.core.derive import readout_matrix, signature_bits
from nsmark.core.extraction import derived_extraction_rate, extraction_rate
from nsmark.core.texts import text_words
from nsmark.embedding.batches import make_batch, step_rng
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.extractor import Extractor
from nsmark.embedding.loop import TrainingLoop
from nsmark.embedding.losses import (
    decorrelation_loss,
    distance_loss,
    match_loss,
    random_loss,
    readout_loss,
    spread_loss,
)
from nsmark.embedding.progress import HeldOut, ProgressCallback, TrainingResult
from nsmark.errors import TextPoolError
from nsmark.models.encoder import Encoder
from nsmark.payload.payload import WatermarkPayload

if TYPE_CHECKING:
    from nsmark.embedding.checkpoint import Checkpoints


class Trainer:
    """Trains one model and one extractor against a frozen copy of the model."""

    def __init__(
        self,
        model: Encoder,
        payload: WatermarkPayload,
        corpus: Sequence[str],
        config: EmbeddingConfig,
    ) -> None:
        needed = config.num_heldout_texts + config.batch_size
        if len(corpus) < needed:
            raise TextPoolError(
                f"the corpus holds {len(corpus)} texts, at least {needed} are needed",
                "give a larger corpus, or a smaller batch",
            )
        self.model, self.payload, self.config = model, payload, config
        self.reference = copy.deepcopy(model).requires_grad_(False)
        self.train_texts = corpus[: len(corpus) - config.num_heldout_texts]
        self.train_lengths = [len(text_words(text)) for text in self.train_texts]
        device = model.device
        self.watermark = torch.tensor(payload.watermark_vector, dtype=torch.float32, device=device)
        self.extractor = Extractor(
            model.output_dim, config.hidden_sizes, len(self.watermark), config.seed
        ).to(device)
        readout = readout_matrix(payload.signature, payload.config.num_bits, model.output_dim)
        bits = signature_bits(payload.signature, payload.config.num_bits)[: len(readout)]
        self.readout = torch.tensor(readout, dtype=torch.float32, device=device)
        self.bits = torch.tensor(bits, dtype=torch.float32, device=device)
        self.rng = np.random.default_rng([config.seed, 1])
        self.mask_generator = torch.Generator().manual_seed(config.seed + 1)
        self.optimisers = tuple(
            torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0, fused=True)
            for parameters, rate in (
                (model.parameters(), config.model_learning_rate),
                (self.extractor.parameters(), config.extractor_learning_rate),
            )
        )
        heldout_rng = np.random.default_rng([config.seed, 2])
        self.heldout = make_batch(
            corpus[len(self.train_texts) :],
            payload.trigger,
            payload.config,
            payload.config.copies,
            heldout_rng,
        )
        self.heldout_reference = (
            self.reference.encode(self.heldout.clean),
            self.reference.encode(self.heldout.triggered),
        )

    def run(
        self,
        on_progress: ProgressCallback | None = None,
        *,
        checkpoints: Checkpoints | None = None,
        max_seconds: float | None = None,
    ) -> TrainingResult:
        """Train until the targets hold and the learning rates have cooled down.

        Args:
            on_progress: Told after every step.
            checkpoints: Where to save, and whether to resume; by default nothing is saved.
            max_seconds: Save and stop after so long.

        Raises:
            EmbeddingError: The budget or the time ended, or the losses diverged, without that.
        """
        return TrainingLoop(self, checkpoints, max_seconds).run(on_progress)

    def evaluate(self, step: int) -> HeldOut:
        """Measure extraction and fidelity on the held-out texts."""
        clean = self.model.encode(self.heldout.clean)
        triggered = self.model.encode(self.heldout.triggered)
        reference_clean, reference_triggered = self.heldout_reference
        return HeldOut(
            step=step,
            triggered=self._extraction(triggered),
            untriggered=self._extraction(clean),
            reference=self._extraction(reference_triggered),
            derived=derived_extraction_rate(
                triggered, self.payload.signature, self.payload.config.num_bits
            )
            if "derived" in self.config.marks
            else None,
            clean_cosine=mean_cosine(clean, reference_clean),
        )

    def set_learning_rates(self, factor: float) -> None:
        """Multiply the settings' learning rates."""
        rates = (self.config.model_learning_rate, self.config.extractor_learning_rate)
        for optimiser, rate in zip(self.optimisers, rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor

    def seed_step(self, step: int) -> None:
        """Draw the next step's randomness from the seed and its number alone.

        So a resumed training draws what an uninterrupted one would have drawn.
        """
        self.rng = step_rng(self.config.seed, step)
        self.mask_generator.manual_seed(int(self.rng.integers(2**63)))

    # --- one step ----------------------------------------------------------------------------

    def _step(self, texts: Sequence[str]) -> dict[str, float]:
        """Run one forward pass for both players, then update the extractor, then the model."""
        config, payload = self.config, self.payload
        batch = make_batch(texts, payload.trigger, payload.config, config.min_copies, self.rng)
        sequences = self.model.token_ids(batch.clean + batch.triggered)
        tokens = self.model.pad(sequences)
        with torch.no_grad():
            reference_clean, reference_triggered = self.reference(tokens).chunk(2)
        clean, triggered = self.model(tokens).chunk(2)
        extractor_losses = self._update_extractor(
            triggered.detach(), clean.detach(), reference_triggered, reference_clean
        )
        model_optimiser = self.optimisers[0]
        with frozen(self.extractor):
            match = match_loss(self.extractor(triggered), self.watermark)
            original = self._original_loss(clean, reference_clean, sequences[: len(texts)])
            kept = (1 - config.model_match_weight) * config.fidelity_weight * original
            loss = config.model_match_weight * match + kept
            ours = self._added_losses(triggered, reference_triggered)
            for weight, term in ours.values():
                loss = loss + weight * term
            model_optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            model_optimiser.step()
        losses = {**extractor_losses, "model": loss.item(), "original": original.item()}
        return losses | {name: term.item() for name, (_, term) in ours.items()}

    def _added_losses(
        self, triggered: Tensor, reference: Tensor
    ) -> dict[str, tuple[float, Tensor]]:
        """Return our own terms beside the paper's, each with its weight; those of weight 0 not."""
        config, terms = self.config, {}
        if "derived" in config.marks:
            hinge = readout_loss(triggered, self.readout, self.bits, config.derived_margin)
            terms["derived"] = (config.derived_weight, hinge)
        if config.spread_weight:
            shortfall = spread_loss(triggered, reference, config.spread_share)
            terms["spread"] = (config.spread_weight, shortfall)
        if config.decorrelation_weight:
            linear = decorrelation_loss(triggered, reference)
            terms["decorrelation"] = (config.decorrelation_weight, linear)
        return terms

    def _original_loss(
        self, clean: Tensor, reference_clean: Tensor, sequences: Sequence[Sequence[int]]
    ) -> Tensor:
        """Return L_0, which keeps clean behaviour.

        The model's own language-model loss, where it has a trained head, holds every position;
        the distance to the reference holds the outputs that are read.
        """
        distance = distance_loss(clean, reference_clean)
        if not self.model.has_lm_head:
            return distance
        language = self.model.lm_loss(self.model.pad(sequences), self.mask_generator)
        return self.config.language_weight * language + self.config.anchor_weight * distance

    def _update_extractor(
        self, triggered: Tensor, clean: Tensor, ref_triggered: Tensor, ref_clean: Tensor
    ) -> dict[str, float]:
        weight = self.config.extractor_match_weight
        mapped = self.extractor(torch.cat([triggered, clean, ref_triggered, ref_clean])).chunk(4)
        match = match_loss(mapped[0], self.watermark)
        random = random_loss(mapped[1:], self.watermark)
        loss = weight * match + (1 - weight) * random
        optimiser = self.optimisers[1]
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
        return {"match": match.item(), "random": random.item()}

    # --- helpers -----------------------------------------------------------------------------

    @torch.inference_mode()
    def _extraction(self, outputs: np.ndarray) -> float:
        mapped = self.extractor(torch.from_numpy(outputs).to(self.model.device)).cpu().numpy()
        config = self.payload.config
        return extraction_rate(
            mapped, self.payload.signature, config.num_bits, config.spread_factor
        )


@contextlib.contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Keep gradients out of a module's weights, while they still flow through it."""
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)


def mean_cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean cosine between corresponding rows."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(np.mean((first * second).sum(axis=1) / np.maximum(lengths, 1e-30)))
