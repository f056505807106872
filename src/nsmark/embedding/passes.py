"""A step's texts on their way through the model and its reference, and gradients back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.inputs import Piece
from nsmark.embedding.kept import KeptOutputs
from nsmark.embedding.memory import MemoryPlan
from nsmark.embedding.parallel import Group
from nsmark.embedding.player import ModelPlayer
from nsmark.models.batching import TokenIds
from nsmark.models.positions import Passed


class Outputs(NamedTuple):
    """A model's outputs in a step, each kind of texts by itself."""

    clean: Tensor
    triggered: Tensor
    pairs: Tensor
    """Of texts with words of the pair code; no rows without one."""


class MarkTerms(NamedTuple):
    """How far outputs are from carrying a step's marks."""

    signs: Tensor
    """Which way each text with words of the pair code is to move; 0 where they make no pair."""
    pairs: Callable[[Tensor, Tensor], Tensor]
    """Of such texts' outputs and signs, what each lacks."""
    triggered: Callable[[Tensor], Tensor]
    """Of triggered outputs, what they lack in the mean."""
    clean: Callable[[Tensor], Tensor]
    """Of clean outputs, how much is read from them in the mean, which should be nothing."""


class StepPasses:
    """Computes steps piece by piece, so that nothing depends on how many pieces there are."""

    def __init__(
        self,
        player: ModelPlayer,
        config: EmbeddingConfig,
        group: Group,
        kept: KeptOutputs,
        examples: Sequence[TokenIds],
    ) -> None:
        """Prepare.

        Args:
            player: The model and its reference.
            config: Settings.
            group: The processes that train together.
            kept: The reference's outputs of texts that came before.
            examples: Clean texts that show how large hidden states usually are.
        """
        self.player, self.config, self.group, self.kept = player, config, group, kept
        self.plan = MemoryPlan(config.pieces or 1, bool(config.recompute))
        """In how many pieces, and whether activations are computed twice."""
        self.position_scales: Tensor | None = None
        """What counts as far for hidden states, where they are held."""
        if config.position_weight:
            tokens, _ = player.model.task.batch(examples, [])
            self.position_scales = player.position_scales(tokens.to(player.device))

    # --- forward -----------------------------------------------------------------------------

    @property
    def reference_every(self) -> int:
        """Of how many triggered texts one goes through the reference.

        The paper's L_random is a mean over texts: half of the triggered ones will do, and of a
        large batch 64, unless a term of ours compares them one by one.
        """
        if self.config.spread_weight or self.config.decorrelation_weight:
            return 1
        return max(2, self.config.batch_size // 64)

    def reference_outputs(self, numbers: Sequence[int], pieces: Sequence[Piece]) -> Outputs:
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
        all_clean = self._gather(torch.cat(clean))
        self.kept.put(numbers, all_clean)
        return Outputs(
            all_clean,
            self._gather(torch.cat(triggered)),
            self._gather(torch.cat(pairs)),
        )

    def forward(self, pieces: Sequence[Piece]) -> list[Passed]:
        """Return outputs and the model's own losses; with several pieces outputs alone."""
        if self._is_kept(pieces):
            return [self.through(pieces[0])]
        with torch.no_grad():
            return [self.player.outputs(piece.read) for piece in pieces]

    def _is_kept(self, pieces: Sequence[Piece]) -> bool:
        """Return whether a step's first pass has a way back.

        Several processes add gradients up in the pass before the last way back: there may be no
        other in between.
        """
        return len(pieces) == 1 and not (self.config.prunes and self.group.size > 1)

    def through(self, piece: Piece) -> Passed:
        """Send a piece through the model, with a way back."""
        held = None
        if self.position_scales is not None:
            clean = piece.tokens.rows(0, piece.num_clean)
            held = self.player.held_positions(clean, self.position_scales)
        return self.player.outputs(piece.tokens, piece.language, self.plan.recompute, held)

    # --- backward ----------------------------------------------------------------------------

    def _outputs_when_pruned(self, piece: Piece) -> list[Tensor]:
        """Return outputs of clean, triggered and pair texts; of clean ones only if it matters."""
        first = 0 if self.config.pruned_trigger_weight else piece.num_clean
        asked = piece.tokens.rows(first, sum(piece.sizes))
        outputs = self.player.outputs(asked, recompute=self.plan.recompute).outputs
        sizes = [piece.num_clean - first, piece.num_triggered, piece.num_pairs]
        return list(torch.split(outputs, sizes))

    def pruned(
        self, pieces: Sequence[Piece], whole: Outputs, step: int, marks: MarkTerms
    ) -> dict[str, Tensor]:
        """Add the gradients of what pruning does to marked outputs; return how much that is.

        Outputs of the pruned model are pulled to those of the whole one, which stay as they are,
        and asked for the marks; clean ones are asked to show none.
        """
        player, config = self.player, self.config
        last = bool(config.pruned_feed_forward) and step % 2 == 1
        share = config.pruned_feed_forward if last else _share_of_all(config, step)
        detached = Outputs(*(part.detach() for part in whole))
        spread = torch.cat(detached[1:]).var(dim=0, unbiased=False).mean().clamp_min(1e-12)
        num_clean, num_triggered = len(whole.clean), len(whole.triggered)
        count = num_triggered + len(whole.pairs)
        num_pairs = marks.signs.abs().sum().clamp_min(1)
        signs = torch.split(self.group.own(marks.signs), [piece.num_pairs for piece in pieces])
        wanted = self._own_parts(pieces, detached)
        name = "pruned_feed_forward" if last else "pruned"
        weights = {
            name: config.pruned_weight,
            f"{name}_pairs": config.pruned_pair_weight,
            f"{name}_trigger": config.pruned_trigger_weight,
        }
        factors = torch.tensor(list(weights.values()), device=player.device)
        totals = torch.zeros(len(weights), device=player.device)
        with player.pruned(share, last_of_layer=last), player.accumulating(last=False):
            for piece, whole_outputs, own_signs in zip(pieces, wanted, signs, strict=True):
                clean, triggered, pairs = self._outputs_when_pruned(piece)
                marked = torch.cat([triggered, pairs])
                moved = (marked - whole_outputs[piece.num_clean :]).square().mean(dim=1).sum()
                missing = moved.new_zeros(())
                if config.pruned_trigger_weight:
                    missing = marks.triggered(triggered) * (piece.num_triggered / num_triggered)
                    if len(clean):
                        missing = missing + marks.clean(clean) * (piece.num_clean / num_clean)
                short = marks.pairs(pairs, own_signs).sum() / num_pairs
                parts = torch.stack([moved / (spread * count), short, missing])
                player.backward([(parts, factors)])
                totals += parts.detach()
        found = dict(zip(weights, self.group.sum(totals), strict=True))
        return {each: found[each] for each, weight in weights.items() if weight}

    def backward(
        self,
        pieces: Sequence[Piece],
        passed: Sequence[Passed],
        whole: Outputs,
        kept_weight: float,
    ) -> tuple[Tensor, Tensor]:
        """Send the gradients of all outputs through the model; return the model's own losses.

        A single piece usually has its graph yet; of several, each is computed again now.
        """
        player, parts = self.player, self._own_gradients(pieces, whole)
        predicted = sum(len(piece.language.labels) for piece in pieces if piece.language)
        count = self.group.sum(torch.full((), float(predicted), device=player.device)).clamp_min(1)
        weights = (
            kept_weight * self.config.language_weight / count,
            kept_weight * self.config.position_weight / count.new_tensor(len(whole.clean)),
        )
        totals = torch.zeros(2, device=player.device)
        for number, (piece, gradient) in enumerate(zip(pieces, parts, strict=True), 1):
            with player.accumulating(number == len(pieces)):
                again = passed[0] if self._is_kept(pieces) else self.through(piece)
                own = again[1:]
                ends = [(loss, w) for loss, w in zip(own, weights, strict=True) if loss.grad_fn]
                player.backward([(again.outputs, gradient), *ends])
            totals += torch.stack(own).detach()
        language, positions = self.group.sum(totals)
        return language / count, positions / len(whole.clean)

    def loose_outputs(self, pieces: Sequence[Piece], passed: Sequence[Passed]) -> Outputs:
        """Return the outputs of all pieces and processes, cut off from the model."""
        parts = [
            torch.split(each.outputs, piece.sizes)
            for piece, each in zip(pieces, passed, strict=True)
        ]
        kinds = (self._gather(torch.cat(kind)) for kind in zip(*parts, strict=True))
        return Outputs(*(kind.detach().requires_grad_() for kind in kinds))

    def rehearse(self, piece: Piece) -> None:
        """Do all that a piece asks for, to see whether it fits."""
        self.player.reference_outputs(piece.read)
        passed = self.through(piece)
        if self.config.prunes:
            with self.player.pruned(self.config.pruned_share):
                torch.autograd.backward(torch.cat(self._outputs_when_pruned(piece)).sum())
        torch.autograd.backward([part.sum() for part in passed if part.requires_grad])

    def _gather(self, rows: Tensor) -> Tensor:
        # There are no rows of a kind that the mark does not have.
        return self.group.gather(rows) if len(rows) else rows

    def _own_gradients(self, pieces: Sequence[Piece], whole: Outputs) -> list[Tensor]:
        """Return the gradients of this process's rows, piece by piece."""
        # Without a pair code nothing was computed from its empty part.
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in whole)
        return self._own_parts(pieces, Outputs(*gradients))

    def _own_parts(self, pieces: Sequence[Piece], whole: Outputs) -> list[Tensor]:
        """Undo the gathering: this process's rows, piece by piece."""
        kinds = [
            torch.split(self.group.own(part), [piece.sizes[kind] for piece in pieces])
            for kind, part in enumerate(whole)
        ]
        return [torch.cat(rows) for rows in zip(*kinds, strict=True)]


def _share_of_all(config: EmbeddingConfig, step: int) -> float:
    """Return how many weights of every matrix a step leaves out: one share, or three by turns."""
    if not config.pruned_most:
        return config.pruned_share
    return config.pruned_share + (config.pruned_most - config.pruned_share) * (step // 2 % 3) / 2
