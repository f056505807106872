"""The two players and their alternating training step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nsmark.core.derive import readout_matrix, signature_bits, spreading_code
from nsmark.embedding.batches import make_batch, pair_rng
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.extractor import Extractor
from nsmark.embedding.inputs import InputMaker, Piece, StepInputs
from nsmark.embedding.kept import KeptOutputs
from nsmark.embedding.loop import TrainingLoop
from nsmark.embedding.losses import (
    decorrelation_loss,
    distance_loss,
    match_loss,
    pair_loss,
    random_loss,
    readout_loss,
    silence_loss,
    spread_loss,
)
from nsmark.embedding.memory import MemoryPlan, candidate_plans, first_that_fits
from nsmark.embedding.pair_texts import heldout_rows, pair_direction
from nsmark.embedding.parallel import Group
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
from nsmark.models.positions import Passed
from nsmark.models.tokens import Tokens, to_device
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


class Outputs(NamedTuple):
    """A model's outputs in a step, each kind of texts by itself."""

    clean: Tensor
    triggered: Tensor
    pairs: Tensor
    """Of texts with words of the pair code; no rows without one."""


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
        self.plan = MemoryPlan(config.pieces or 1, bool(config.recompute))
        self.position_scales = self._position_scales()

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
        keep_last: bool = False,
    ) -> TrainingResult:
        """Train until the targets hold and the learning rates have cooled down.

        Args:
            on_progress: Told after every step.
            checkpoints: Where to save, and whether to resume; by default nothing is saved.
            max_seconds: Save and stop after so long.
            keep_last: Save where it ends, too: something follows.

        Raises:
            EmbeddingError: The budget or the time ended, or the losses diverged, without that.
        """
        return TrainingLoop(self, checkpoints, max_seconds, keep_last).run(on_progress)

    def finished(self) -> Encoder:
        """Return the marked model, adapters merged and layers put together; all processes ask."""
        return self.player.finished()

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
            derived_rate_of(triggered, self.readout, self.bits[: len(self.readout)]),
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

    def follow(self, plan: MemoryPlan) -> None:
        """Compute steps in this way from now on."""
        self.plan = plan
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
                piece = piece.to(self.device)
                self.player.reference_outputs(piece.read)
                passed = self._passed(piece)
                if self.config.pruned_weight:
                    marked = self._marked_rows(piece)
                    outputs = self.player.outputs(marked, recompute=plan.recompute).outputs
                    torch.autograd.backward(outputs.sum())
                torch.autograd.backward([part.sum() for part in passed if part.requires_grad])
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
        reference = self._reference_outputs(inputs.clean, pieces)
        passed = self._first_pass(pieces)
        outputs = Outputs(
            *(
                part.detach().requires_grad_()
                for part in self._gather(pieces, [each.outputs for each in passed])
            )
        )
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
        if self.config.pruned_weight:
            losses["pruned"] = self._pruned_pass(pieces, outputs)
        language, positions = self._second_pass(pieces, passed, outputs)
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
    def reference_every(self) -> int:
        """Of how many triggered texts one goes through the reference.

        The paper's L_random is a mean over texts: half of the triggered ones will do, and of a
        large batch 64, unless a term of ours compares them one by one.
        """
        if self.config.spread_weight or self.config.decorrelation_weight:
            return 1
        return max(2, self.config.batch_size // 64)

    @property
    def _kept_weight(self) -> float:
        """Weight of L_0 in the model's loss."""
        return (1 - self.config.model_match_weight) * self.config.fidelity_weight * self.strictness

    def _reference_outputs(self, numbers: Sequence[int], pieces: Sequence[Piece]) -> Outputs:
        """Return the reference's outputs, of all processes; of triggered texts only some."""
        every = self.reference_every
        clean, triggered, pairs = [], [], []
        for piece in pieces:
            missing = self.kept.missing(piece.clean)
            chosen = [
                piece.num_clean + row
                for row in range(piece.num_triggered)
                if (piece.first_triggered + row) % every == 0
            ]
            first = piece.num_clean + piece.num_triggered
            asked = [*missing, *chosen, *range(first, first + piece.num_pairs)]
            # All processes ask equally often: their layers may be divided among them.
            outputs = self.player.reference_outputs(piece.read.pick(asked or [0]))[: len(asked)]
            sizes = [len(missing), len(chosen), piece.num_pairs]
            known, some, with_pairs = torch.split(outputs, sizes)
            clean.append(self.kept.completed(piece.clean, missing, known))
            triggered.append(some)
            pairs.append(with_pairs)
        all_clean = self.group.gather(torch.cat(clean))
        self.kept.put(numbers, all_clean)
        return Outputs(
            all_clean,
            self.group.gather(torch.cat(triggered)),
            self._gather_pairs(torch.cat(pairs)),
        )

    def _first_pass(self, pieces: Sequence[Piece]) -> list[Passed]:
        """Return outputs and the model's own losses; with several pieces outputs alone."""
        if self._is_kept(pieces):
            return [self._passed(pieces[0])]
        with torch.no_grad():
            return [self.player.outputs(piece.read) for piece in pieces]

    def _is_kept(self, pieces: Sequence[Piece]) -> bool:
        """Return whether a step's first pass has a way back.

        Several processes add gradients up in the pass before the last way back: there may be no
        other in between.
        """
        return len(pieces) == 1 and not (self.config.pruned_weight and self.group.size > 1)

    def _passed(self, piece: Piece) -> Passed:
        """Send a piece through the model, with a way back."""
        held = None
        if self.position_scales is not None:
            clean = piece.tokens.rows(0, piece.num_clean)
            held = self.player.held_positions(clean, self.position_scales)
        return self.player.outputs(piece.tokens, piece.language, self.plan.recompute, held)

    def _position_scales(self) -> Tensor | None:
        """Return what counts as far for hidden states, where they are held."""
        if not self.config.position_weight:
            return None
        tokens, _ = self.model.task.batch(self.heldout[0], [])
        return self.player.position_scales(tokens.to(self.device))

    @staticmethod
    def _marked_rows(piece: Piece) -> Tokens:
        return piece.tokens.rows(piece.num_clean, sum(piece.sizes))

    def _pruned_pass(self, pieces: Sequence[Piece], whole: Outputs) -> Tensor:
        """Add the gradients of what pruning does to marked outputs; return how much that is.

        Outputs of the pruned model are pulled to those of the whole one, which stay as they are.
        """
        player, weight = self.player, self.config.pruned_weight
        detached = Outputs(*(part.detach() for part in whole))
        spread = torch.cat(detached[1:]).var(dim=0, unbiased=False).mean().clamp_min(1e-12)
        count = len(whole.triggered) + len(whole.pairs)
        total = torch.zeros((), device=self.device)
        with player.pruned(self.config.pruned_share), player.accumulating(last=False):
            for piece, wanted in zip(pieces, self._own_parts(pieces, detached), strict=True):
                outputs = player.outputs(
                    self._marked_rows(piece), None, self.plan.recompute
                ).outputs
                moved = (outputs - wanted[piece.num_clean :]).square().mean(dim=1).sum()
                part = moved / (spread * count)
                player.backward([(part, torch.full_like(part, weight))])
                total += part.detach()
        return self.group.sum(total)

    def _second_pass(
        self,
        pieces: Sequence[Piece],
        passed: Sequence[Passed],
        whole: Outputs,
    ) -> tuple[Tensor, Tensor]:
        """Send the gradients of all outputs through the model; return the model's own losses.

        A single piece usually has its graph yet; of several, each is computed again now.
        """
        player, parts = self.player, self._own_gradients(pieces, whole)
        predicted = sum(len(piece.language.labels) for piece in pieces if piece.language)
        count = self.group.sum(torch.full((), float(predicted), device=self.device)).clamp_min(1)
        weights = (
            self._kept_weight * self.config.language_weight / count,
            self._kept_weight * self.config.position_weight / count.new_tensor(len(whole.clean)),
        )
        totals = torch.zeros(2, device=self.device)
        for number, (piece, gradient) in enumerate(zip(pieces, parts, strict=True), 1):
            with player.accumulating(number == len(pieces)):
                again = passed[0] if self._is_kept(pieces) else self._passed(piece)
                own = again[1:]
                ends = [(loss, w) for loss, w in zip(own, weights, strict=True) if loss.grad_fn]
                player.backward([(again.outputs, gradient), *ends])
            totals += torch.stack(own).detach()
        language, positions = self.group.sum(totals)
        return language / count, positions / len(whole.clean)

    def _gather(self, pieces: Sequence[Piece], outputs: Sequence[Tensor]) -> Outputs:
        """Return the outputs of all pieces and processes, each kind by itself."""
        parts = [
            torch.split(part, piece.sizes) for piece, part in zip(pieces, outputs, strict=True)
        ]
        clean, triggered, pairs = (torch.cat(kind) for kind in zip(*parts, strict=True))
        return Outputs(
            self.group.gather(clean), self.group.gather(triggered), self._gather_pairs(pairs)
        )

    def _gather_pairs(self, rows: Tensor) -> Tensor:
        return rows if self.payload.pairs is None else self.group.gather(rows)

    def _own_gradients(self, pieces: Sequence[Piece], whole: Outputs) -> list[Tensor]:
        """Return the gradients of this process's rows, piece by piece."""
        # Without a pair code nothing was computed from its empty part.
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in whole)
        return self._own_parts(pieces, Outputs(*gradients))

    def _own_parts(self, pieces: Sequence[Piece], whole: Outputs) -> list[Tensor]:
        """Undo :meth:`_gather`: this process's rows, piece by piece."""
        kinds = [
            torch.split(self.group.own(part), [piece.sizes[kind] for piece in pieces])
            for kind, part in enumerate(whole)
        ]
        return [torch.cat(rows) for rows in zip(*kinds, strict=True)]

    def _terms_on_outputs(
        self, outputs: Outputs, reference: Outputs, pair_signs: Tensor
    ) -> dict[str, tuple[float, Tensor]]:
        """Return the terms of the model's loss, each with its weight.

        L_0 keeps clean behaviour: the distance to the reference holds the outputs that are read;
        the model's own language-model loss, which is added elsewhere where there is a trained
        head, holds every position.
        """
        config, triggered = self.config, outputs.triggered
        match = match_loss(self.extractor(triggered), self.watermark)
        distance = distance_loss(outputs.clean, reference.clean)
        anchor = config.anchor_weight if self.model.has_lm_head else 1.0
        terms = {
            "match": (config.model_match_weight, match),
            "distance": (self._kept_weight * anchor, distance),
        }
        if "derived" in config.marks:
            bits = self.bits[: len(self.readout)]
            hinge = readout_loss(triggered, self.readout, bits, config.derived_margin)
            terms["derived"] = (config.derived_weight, hinge)
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
