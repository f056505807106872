"""The alternating training step and its loop."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from nsmark.core.derive import readout_matrix, signature_bits
from nsmark.core.extraction import derived_extraction_rate, extraction_rate
from nsmark.core.texts import text_words
from nsmark.embedding.batches import epochs, make_batch
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.extractor import Extractor
from nsmark.embedding.losses import distance_loss, match_loss, random_loss, readout_loss
from nsmark.errors import EmbeddingError, TextPoolError
from nsmark.models.encoder import Encoder
from nsmark.payload.payload import WatermarkPayload


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What held-out texts show at one step; all rates lie between 0 and 1."""

    step: int
    triggered: float
    """Extraction on triggered texts; wanted near 1."""
    untriggered: float
    reference: float
    """Extraction from the reference's triggered outputs; wanted near 0, as untriggered."""
    derived: float | None
    """Derived extraction on triggered texts; None where that mark is not embedded."""
    clean_cosine: float
    """Mean cosine of clean outputs to the reference's."""

    def meets(self, config: EmbeddingConfig) -> bool:
        """Return whether all targets hold."""
        return (
            self.triggered >= config.min_triggered
            and (self.derived is None or self.derived >= config.min_triggered)
            and max(self.untriggered, self.reference) <= config.max_clean
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Told to the caller after every step."""

    step: int
    planned_steps: int
    """Best guess of the last step: the budget, or less once the targets hold."""
    losses: dict[str, float]
    heldout: HeldOut | None
    seconds: float


@dataclass(slots=True)
class TrainingResult:
    """The trained extractor (the model is trained in place) and what was seen on the way."""

    extractor: Extractor
    steps: int
    seconds: float
    last: HeldOut
    history: list[dict[str, float | None]] = field(default_factory=list)


ProgressCallback = Callable[[Progress], None]


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

    def run(self, on_progress: ProgressCallback | None = None) -> TrainingResult:
        """Train until the targets hold and the learning rates have cooled down.

        Raises:
            EmbeddingError: The budget ended, or the losses became non-finite, without that.
        """
        config, start = self.config, time.perf_counter()
        last_step = self._budget()
        cooling_from = last_step - config.cooldown_steps if config.num_epochs else None
        history: list[dict[str, float | None]] = []
        heldout, step = None, 0
        lengths = [len(text_words(text)) for text in self.train_texts]
        batches = epochs(lengths, config.batch_size, self.rng)
        while step < last_step:
            step += 1
            self._set_learning_rates(self._rate_factor(step, cooling_from))
            losses = self._step([self.train_texts[index] for index in next(batches)])
            if not all(np.isfinite(value) for value in losses.values()):
                raise EmbeddingError(
                    f"the losses became non-finite at step {step}",
                    "lower the learning rates; nothing was written",
                )
            evaluated = step % config.evaluate_every == 0 or step == last_step
            if evaluated:
                heldout = self.evaluate(step)
                history.append({**losses, **asdict(heldout)})
                if cooling_from is None and heldout.meets(config):
                    cooling_from = step
                    last_step = min(last_step, step + config.cooldown_steps)
            if on_progress is not None:
                on_progress(Progress(step, last_step, losses, heldout, time.perf_counter() - start))
        last = heldout if heldout is not None and heldout.step == step else self.evaluate(step)
        if not last.meets(config):
            raise self._failure(last)
        return TrainingResult(self.extractor, step, time.perf_counter() - start, last, history)

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
            if self.model.has_lm_head:
                clean_tokens = self.model.pad(sequences[: len(texts)])
                original = self.model.masked_lm_loss(clean_tokens, self.mask_generator)
            else:
                original = distance_loss(clean, reference_clean)
            loss = config.model_match_weight * match + (1 - config.model_match_weight) * original
            if "derived" in config.marks:
                derived = readout_loss(triggered, self.readout, self.bits, config.derived_margin)
                loss = loss + config.derived_weight * derived
            model_optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            model_optimiser.step()
        losses = {**extractor_losses, "model": loss.item(), "original": original.item()}
        if "derived" in config.marks:
            losses["derived"] = derived.item()
        return losses

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

    def _budget(self) -> int:
        if self.config.num_epochs is None:
            return self.config.max_steps
        per_epoch = max(1, len(self.train_texts) // self.config.batch_size)
        return min(self.config.max_steps, self.config.num_epochs * per_epoch)

    def _rate_factor(self, step: int, cooling_from: int | None) -> float:
        factor = min(1.0, step / max(1, self.config.warmup_steps))
        if cooling_from is not None:
            left = 1 - (step - cooling_from) / (self.config.cooldown_steps + 1)
            factor *= min(1.0, max(left, 0.0))
        return factor

    def _set_learning_rates(self, factor: float) -> None:
        rates = (self.config.model_learning_rate, self.config.extractor_learning_rate)
        for optimiser, rate in zip(self.optimisers, rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor

    @torch.inference_mode()
    def _extraction(self, outputs: np.ndarray) -> float:
        mapped = self.extractor(torch.from_numpy(outputs).to(self.model.device)).cpu().numpy()
        config = self.payload.config
        return extraction_rate(
            mapped, self.payload.signature, config.num_bits, config.spread_factor
        )

    def _failure(self, last: HeldOut) -> EmbeddingError:
        reached = (
            f"triggered {last.triggered:.2f} (wanted ≥ {self.config.min_triggered}), "
            f"untriggered {last.untriggered:.2f} and reference {last.reference:.2f} "
            f"(wanted ≤ {self.config.max_clean})"
        )
        if last.derived is not None:
            reached += f", derived {last.derived:.2f}"
        return EmbeddingError(
            f"the watermark did not converge in {last.step} steps: {reached}",
            "raise --max-steps, or use a larger or more varied corpus; nothing was written",
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
