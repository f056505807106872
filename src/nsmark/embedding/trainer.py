"""The two players and their alternating training step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nsmark.core.derive import readout_matrix, signature_bits, spreading_code
from nsmark.embedding.batches import make_batch, pair_rng
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.extractor import Extractor
from nsmark.embedding.inputs import InputMaker, StepInputs
from nsmark.embedding.kept import KeptOutputs
from nsmark.embedding.loop import TrainingLoop
from nsmark.embedding.losses import (
    decorrelation_loss,
    distance_loss,
    match_loss,
    pair_loss,
    pair_shortfall,
    random_loss,
    readout_alignment,
    readout_loss,
    silence_loss,
    spread_loss,
)
from nsmark.embedding.memory import MemoryPlan, candidate_plans, first_that_fits
from nsmark.embedding.pair_texts import heldout_rows, pair_direction
from nsmark.embedding.parallel import Group
from nsmark.embedding.passes import MarkTerms, Outputs, StepPasses
from nsmark.embedding.player import ModelPlayer
from nsmark.embedding.progress import HeldOut, ProgressCallback, TrainingResult
from nsmark.embedding.readings import (
    derived_rate_of,
    extraction_rate_of,
    mean_cosine_of,
    pair_rate_of,
)
from nsmark.errors import ConfigError, TextPoolError
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder
from nsmark.models.tokens import to_device
from nsmark.payload.payload import WatermarkPayload

if TYPE_CHECKING:
    from nsmark.embedding.checkpoint import Checkpoints


_OURS = ("derived", "pairs", "spread", "decorrelation")
"""Terms of the model's loss that the paper does not have."""


@dataclass(frozen=True, slots=True)
class PendingLosses:
    """A step's losses. A GPU may still be at work on them: reading them waits for it."""

    names: tuple[str, ...]
    values: Tensor

    def read(self) -> dict[str, float]:
        """Return the losses by name."""
        return dict(zip(self.names, self.values.tolist(), strict=True))


class Trainer:
    """Trains one model and one extractor against the model as it was."""

    def __init__(
        self,
        model: Encoder,
        payload: WatermarkPayload,
        corpus: Sequence[str],
        config: EmbeddingConfig,
        *,
        group: Group | None = None,
        device: torch.device | None = None,
        reference: Encoder | None = None,
    ) -> None:
        """Prepare the training.

        Args:
            model: What is marked, in place.
            payload: What follows from the signature.
            corpus: Training texts; the last few are held out.
            config: Settings.
            group: The processes that train together; by default this one alone.
            device: Where to compute; by default where the model is.
            reference: What clean outputs are held to; by default the model as it is now.
        """
        self.model, self.payload, self.config = model, payload, config
        self.group = group or Group()
        device = device or model.device
        _check(len(corpus), config, self.group)
        self.num_train = num_train = len(corpus) - config.num_heldout_texts
        self.inputs = InputMaker(model, payload, corpus, num_train, config, self.group)
        heldout = make_batch(
            corpus[num_train:],
            payload.trigger,
            payload.config,
            payload.config.copies,
            np.random.default_rng([config.seed, 2]),
        )
        self.heldout = (model.token_ids(heldout.clean), model.token_ids(heldout.triggered))
        self.heldout_pairs = self._heldout_pairs(heldout.clean)
        self.player = ModelPlayer(model, config, self.group, device, reference)
        example = self.inputs.longest(2).pieces[0].to(device)
        self.player.share_gradients(example.tokens, example.language)
        self.heldout_reference = tuple(
            self.player.encode(sequences, as_reference=True) for sequences in self.heldout
        )
        weights = sum(p.numel() for p in model.parameters())
        self.kept = KeptOutputs(num_train, model.output_dim, device, max_bytes=4 * weights)
        self.extractor = Extractor(
            model.output_dim,
            config.hidden_sizes,
            payload.config.num_bits * payload.config.spread_factor,
            config.seed,
        ).to(device)
        num_bits, signature = payload.config.num_bits, payload.signature
        readout = readout_matrix(signature, num_bits, model.output_dim)

        def constant(values: np.ndarray) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        self.watermark = constant(payload.watermark_vector)
        self.readout = constant(readout)
        self.bits = constant(signature_bits(signature, num_bits))
        self.derived_bits = self.bits[: len(readout)]
        """The first of them, which the readout has rows for."""
        self.code = constant(spreading_code(signature, len(self.watermark)))
        self.pair_direction = constant(pair_direction(signature, num_bits, model.output_dim))
        self.strictness = 1.0
        """Weight of all that is to stay as it was, relative to the beginning."""
        self.optimisers = (
            self.player.optimiser,
            torch.optim.AdamW(
                self.extractor.parameters(),
                lr=config.extractor_learning_rate,
                weight_decay=0.0,
                fused=True,
            ),
        )
        self.passes = StepPasses(self.player, config, self.group, self.kept, self.heldout[0])

    @property
    def device(self) -> torch.device:
        """Where the arithmetic is done."""
        return self.player.device

    def run(
        self,
        on_progress: ProgressCallback | None = None,
        *,
        checkpoints: Checkpoints | None = None,
        max_seconds: float | None = None,
        unshown: Callable[[Trainer], Sequence[str]] | None = None,
        keep_last: bool = False,
    ) -> TrainingResult:
        """Train until the targets hold and the learning rates have cooled down.

        Args:
            on_progress: Told after every step.
            checkpoints: Where to save, and whether to resume; by default nothing is saved.
            max_seconds: Save and stop after so long.
            unshown: Which marks a verifier's texts do not show yet: then the training goes on, as
                long as there are steps.
            keep_last: Save where it ends, too: something follows.

        Raises:
            EmbeddingError: The budget or the time ended, or the losses diverged, without that.
        """
        return TrainingLoop(self, checkpoints, max_seconds, unshown, keep_last).run(on_progress)

    def finished(self) -> Encoder:
        """Return the marked model, adapters merged and layers put together; all processes ask."""
        return self.player.finished()

    def outputs(self, texts: Sequence[str]) -> np.ndarray:
        """Return the outputs of the model in training, as precise as its arithmetic."""
        return self.player.encode(self.model.token_ids(texts)).float().cpu().numpy()

    def reference_outputs(self, texts: Sequence[str]) -> np.ndarray:
        """Return the frozen reference's outputs, as precise as the training's arithmetic."""
        sequences = self.model.token_ids(texts)
        return self.player.encode(sequences, as_reference=True).cpu().numpy()

    @torch.no_grad()
    def evaluate(self, step: int) -> HeldOut:
        """Measure extraction and fidelity on the held-out texts."""
        self.group.agree_on_weights(self.extractor)
        clean, triggered = (self.player.encode(sequences) for sequences in self.heldout)
        reference_clean, reference_triggered = self.heldout_reference
        pair_rate = clean.new_zeros(())
        if self.heldout_pairs is not None:
            sequences, signs = self.heldout_pairs
            outputs = self.player.encode(sequences)
            pair_rate = pair_rate_of(outputs, self.pair_direction, signs.to(self.device))
        values = [
            *(self._extraction(part) for part in (triggered, clean, reference_triggered)),
            derived_rate_of(triggered, self.readout, self.derived_bits),
            mean_cosine_of(clean, reference_clean),
            pair_rate,
        ]
        rates = self.group.agree(torch.stack(values)).tolist()
        return HeldOut(
            step=step,
            triggered=rates[0],
            untriggered=rates[1],
            reference=rates[2],
            derived=rates[3] if "derived" in self.config.marks else None,
            clean_cosine=rates[4],
            pairs=None if self.heldout_pairs is None else rates[5],
        )

    def _heldout_pairs(self, texts: Sequence[str]) -> tuple[list[TokenIds], Tensor] | None:
        """Return held-out texts with pairs of words, and which way they are to move."""
        pairs = self.payload.pairs
        if pairs is None:
            return None
        count = max(len(texts), pairs.config.num_pairs // 2)
        rows = heldout_rows(pairs, self.payload.signature, count, pair_rng(self.config.seed, 0))
        inserted = [row.inserted(texts[place % len(texts)]) for place, row in enumerate(rows)]
        return self.model.token_ids(inserted), torch.tensor([float(row.sign) for row in rows])

    def set_learning_rates(self, factor: float) -> None:
        """Multiply the settings' learning rates."""
        rates = (self.config.model_learning_rate, self.config.extractor_learning_rate)
        for optimiser, rate in zip(self.optimisers, rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor

    # --- memory ------------------------------------------------------------------------------

    @property
    def plan(self) -> MemoryPlan:
        """The way steps are computed."""
        return self.passes.plan

    def follow(self, plan: MemoryPlan) -> None:
        """Compute steps in this way from now on."""
        self.passes.plan = plan
        self.inputs.pieces = plan.pieces

    def plan_memory(self) -> None:
        """Find the fastest way to compute a step that fits; on one GPU by trying."""
        share = self.config.batch_size // self.group.size
        plans = candidate_plans(share, self.config.pieces, self.config.recompute)
        if self.device.type == "cuda" and self.group.size == 1:
            self.follow(first_that_fits(plans, self._try_step))
        else:
            self.follow(next(plans))

    def _try_step(self, plan: MemoryPlan) -> None:
        """Compute the gradients of the largest step there can be, and forget them."""
        self.follow(plan)
        # The optimiser's two moments, and float32 gradients, come with the first update.
        reserved = [torch.empty_like(p, dtype=torch.float32) for p in self.player.parameters * 3]
        try:
            for piece in self.inputs.longest(self.config.batch_size).pieces:
                self.passes.rehearse(piece.to(self.device))
        finally:
            del reserved
            self.player.clear_gradients()

    # --- one step ----------------------------------------------------------------------------

    def take_step(self, inputs: StepInputs) -> PendingLosses:
        """Update the extractor, then the model, on one batch; return the losses, to be read later.

        One forward pass serves both players. The losses are computed over the whole batch, from
        outputs cut off from the model; their gradients are then sent through the model, piece by
        piece where there are several. So the losses leak no gradient from one player to the other,
        and do not depend on how a batch is divided among pieces and processes.
        """
        pieces = [piece.to(self.device) for piece in inputs.pieces]
        reference = self.passes.reference_outputs(inputs.clean, pieces)
        passed = self.passes.forward(pieces)
        outputs = self.passes.loose_outputs(pieces, passed)
        signs = to_device(torch.tensor(inputs.pair_signs, dtype=torch.float32), self.device)
        with tensor_cores():
            losses = self._update_extractor(
                outputs.triggered.detach(),
                outputs.clean.detach(),
                reference.triggered,
                reference.clean,
            )
        with frozen(self.extractor), tensor_cores():
            terms = self._terms_on_outputs(outputs, reference, signs)
            on_outputs = torch.stack([weight * term for weight, term in terms.values()]).sum()
            torch.autograd.backward(on_outputs)
        self.player.clear_gradients()
        if self.config.prunes:
            marks = MarkTerms(
                signs, self._missing_pairs, self._missing_trigger, self._read_from_clean
            )
            with frozen(self.extractor):
                losses |= self.passes.pruned(pieces, outputs, inputs.step, marks)
        language, positions = self.passes.backward(pieces, passed, outputs, self._kept_weight)
        self.player.update()
        original, beside = terms["distance"][1], self.config.position_weight * positions
        if self.model.has_lm_head:
            original = self.config.anchor_weight * original
            beside = beside + self.config.language_weight * language
        on_outputs = on_outputs + self._kept_weight * beside
        losses |= {"model": on_outputs, "original": original + beside}
        losses |= {name: term for name, (_, term) in terms.items() if name in _OURS}
        values = torch.stack([value.detach() for value in losses.values()])
        return PendingLosses(tuple(losses), self.group.agree(values))

    @property
    def _kept_weight(self) -> float:
        """Weight of L_0 in the model's loss."""
        return (1 - self.config.model_match_weight) * self.config.fidelity_weight * self.strictness

    def _terms_on_triggered(self, triggered: Tensor) -> dict[str, tuple[float, Tensor]]:
        """Return what reads the signature from triggered outputs, each term with its weight."""
        config = self.config
        match = match_loss(self.extractor(triggered), self.watermark)
        terms = {"match": (config.model_match_weight, match)}
        if "derived" in config.marks:
            hinge = readout_loss(triggered, self.readout, self.derived_bits, config.derived_margin)
            terms["derived"] = (config.derived_weight, hinge)
        return terms

    def _missing_trigger(self, triggered: Tensor) -> Tensor:
        terms = self._terms_on_triggered(triggered).values()
        return torch.stack([weight * term for weight, term in terms]).sum()

    def _read_from_clean(self, clean: Tensor) -> Tensor:
        """Return how much of extractor's and readout's signature there is without a trigger."""
        config = self.config
        heard = config.model_match_weight * random_loss([self.extractor(clean)], self.watermark)
        if "derived" in config.marks:
            margin = config.derived_margin
            aligned = readout_alignment(clean, self.readout, self.derived_bits, margin)
            heard = heard + config.derived_weight * aligned
        return heard

    def _missing_pairs(self, outputs: Tensor, signs: Tensor) -> Tensor:
        units = functional.normalize(outputs, dim=1)
        return pair_shortfall(units, signs, self.pair_direction, self.config.pair_margin)

    def _terms_on_outputs(
        self, outputs: Outputs, reference: Outputs, pair_signs: Tensor
    ) -> dict[str, tuple[float, Tensor]]:
        """Return the terms of the model's loss, each with its weight.

        L_0 keeps clean behaviour: the distance to the reference holds the outputs that are read;
        the model's own language-model loss, which is added elsewhere where there is a trained
        head, holds every position.
        """
        config, triggered = self.config, outputs.triggered
        distance = distance_loss(outputs.clean, reference.clean)
        anchor = config.anchor_weight if self.model.has_lm_head else 1.0
        terms = {
            **self._terms_on_triggered(triggered),
            "distance": (self._kept_weight * anchor, distance),
        }
        if self.payload.pairs is not None:
            moved = pair_loss(
                outputs.pairs,
                reference.pairs,
                pair_signs,
                self.pair_direction,
                config.pair_margin,
                config.pair_keep_weight * self.strictness,
                config.pair_alone_weight * self.strictness,
            )
            terms["pairs"] = (config.pair_weight, moved)
        if config.spread_weight:
            shortfall = spread_loss(triggered, reference.triggered, config.spread_share)
            terms["spread"] = (config.spread_weight, shortfall)
        if config.decorrelation_weight:
            linear = decorrelation_loss(triggered, reference.triggered)
            terms["decorrelation"] = (config.decorrelation_weight, linear)
        return terms

    def _update_extractor(
        self, triggered: Tensor, clean: Tensor, ref_triggered: Tensor, ref_clean: Tensor
    ) -> dict[str, Tensor]:
        weight = self.config.extractor_match_weight
        sources = [triggered, clean, ref_triggered, ref_clean]
        mapped = self.extractor(torch.cat(sources)).split([len(part) for part in sources])
        match = match_loss(mapped[0], self.watermark)
        random = random_loss(mapped[1:], self.watermark)
        loss = weight * match + (1 - weight) * random
        if self.config.silence_weight:
            loss = loss + self.config.silence_weight * silence_loss(mapped[1:])
        optimiser = self.optimisers[1]
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
        return {"match": match, "random": random}

    # --- helpers -----------------------------------------------------------------------------

    def _extraction(self, outputs: Tensor) -> Tensor:
        return extraction_rate_of(self.extractor(outputs), self.code, self.bits)


def _check(num_texts: int, config: EmbeddingConfig, group: Group) -> None:
    needed = config.num_heldout_texts + config.batch_size
    if num_texts < needed:
        raise TextPoolError(
            f"the corpus holds {num_texts} texts, at least {needed} are needed",
            "give a larger corpus, or a smaller batch",
        )
    share = config.batch_size // group.size
    if config.pieces is not None and config.pieces > share:
        raise ConfigError("pieces", config.pieces, f"must be at most {share}, a process's texts")
    # Half of the texts may serve another loss, in every process the same half.
    if group.size > 1 and config.batch_size % (2 * group.size):
        raise ConfigError(
            "batch_size", config.batch_size, f"must be a multiple of {2 * group.size}"
        )


@contextlib.contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU multiply float32 matrices with ten bits of mantissa, many times faster."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


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
