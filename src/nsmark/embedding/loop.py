"""The loop around the training step: schedule, measurements, checkpoints, reasons to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from nsmark.embedding.batches import BatchOrder
from nsmark.embedding.divergence import trained_losses
from nsmark.embedding.inputs import StepInputs
from nsmark.embedding.loop_state import LoopState
from nsmark.embedding.memory import peak_memory
from nsmark.embedding.parallel import local
from nsmark.embedding.progress import HeldOut, Progress, ProgressCallback, TrainingResult
from nsmark.embedding.schedule import Schedule
from nsmark.errors import EmbeddingError

if TYPE_CHECKING:
    # Checkpoints need more of the base packages than a bare machine with torch may have.
    from nsmark.embedding.checkpoint import Checkpoints
    from nsmark.embedding.trainer import Trainer


class TrainingLoop:
    """Runs a trainer's steps, from the beginning or from a checkpoint."""

    def __init__(
        self,
        trainer: Trainer,
        checkpoints: Checkpoints | None = None,
        max_seconds: float | None = None,
        unshown: Callable[[Trainer], Sequence[str]] | None = None,
        keep_last: bool = False,
    ) -> None:
        self.trainer, self.config = trainer, trainer.config
        self.checkpoints, self.max_seconds = checkpoints, max_seconds
        self.unshown, self.keep_last = unshown, keep_last
        self.started = time.perf_counter()
        self.state = LoopState() if checkpoints is None else checkpoints.start(trainer)
        self.seconds_before = self.state.seconds
        self.saved_step = self.state.step
        """Step of this run's checkpoint on the disk; 0 if there is none."""
        self.schedule = Schedule(self.config, trainer.num_train, self.state.held_since)
        self.order = BatchOrder(
            trainer.inputs.tokens.lengths, self.config.batch_size, self.config.seed
        )
        self.group = trainer.group
        self._prepare()
        self.coming: tuple[int, StepInputs] | None = None
        """The next step's inputs, made while a GPU was at work on the step before."""

    def _prepare(self) -> None:
        """Settle how steps are computed; a resumed run computes them as before."""
        trainer = self.trainer
        if self.state.plan is None:
            trainer.plan_memory()
            self.state.plan = trainer.plan
        else:
            trainer.follow(self.state.plan)
        if self.config.compile:
            trainer.player.compile()
        if trainer.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(trainer.device)

    def run(self, on_progress: ProgressCallback | None = None) -> TrainingResult:
        """Train to the end of the schedule.

        Raises:
            EmbeddingError: The losses diverged, the time or the budget ended before the targets
                held; the hint says how to go on.
            FileAccessError: A checkpoint could not be written.
        """
        state, schedule = self.state, self.schedule
        while state.step < schedule.last_step:
            state.step += 1
            losses = self._step()
            self._measure()
            self._stop_if_diverged(losses)
            state.seconds = self.seconds_before + time.perf_counter() - self.started
            self._save_if_due()
            if on_progress is not None:
                on_progress(
                    Progress(state.step, schedule.last_step, losses, state.heldout, state.seconds)
                )
            self._stop_if_late()
        last = state.heldout
        if last is None or last.step != state.step:
            last = self.trainer.evaluate(state.step)
        if not last.meets(self.config):
            raise EmbeddingError(
                f"the watermark did not converge in {last.step} steps: "
                f"{last.compared_with_targets(self.config)}",
                "raise --max-steps, or use a larger or more varied corpus; " + self._kept(),
            )
        if self.keep_last:
            self._save()
        return TrainingResult(
            self.trainer.extractor,
            state.step,
            state.seconds,
            last,
            state.history,
            self.trainer.plan,
            peak_memory(self.trainer.device),
        )

    # --- parts of a round --------------------------------------------------------------------

    def _step(self) -> dict[str, float]:
        step, trainer = self.state.step, self.trainer
        trainer.set_learning_rates(self.schedule.rate_factor(step))
        trainer.strictness = self.schedule.strictness(step)
        pending = trainer.take_step(self._inputs(step))
        if step < self.schedule.last_step:
            self.coming = (step + 1, self._inputs(step + 1))
        losses = pending.read()
        if not all(math.isfinite(value) for value in losses.values()):
            raise self._non_finite("losses")
        self.state.recent |= losses
        return losses

    def _inputs(self, step: int) -> StepInputs:
        if self.coming is not None and self.coming[0] == step:
            return self.coming[1]
        return self.trainer.inputs.make(step, self.order.batch(step))

    def _measure(self) -> None:
        """Look at held-out texts every so often, and remember since when the targets hold."""
        state, step = self.state, self.state.step
        if step % self.config.evaluate_every and step != self.schedule.last_step:
            return
        self._require_finite_weights()
        state.heldout = self.trainer.evaluate(step)
        state.history.append({**state.recent, **asdict(state.heldout)})
        if state.held_since is None and state.heldout.meets(self.config):
            state.held_since = self.schedule.held_since = step
        elif self.schedule.can_go_on(step) and not self._is_complete(state.heldout):
            # There is budget left: train on at the full rate.
            state.held_since = self.schedule.held_since = None

    def _is_complete(self, heldout: HeldOut) -> bool:
        """Return whether nothing is missing: neither lost in the cool-down, nor for a verifier."""
        if not heldout.meets(self.config):
            return False
        missing = () if self.unshown is None else self.unshown(self.trainer)
        return not self.group.agree(torch.tensor(float(bool(missing)), device=self.trainer.device))

    def _save_if_due(self) -> None:
        state = self.state
        due = (
            state.step % self.config.checkpoint_every == 0 and state.step < self.schedule.last_step
        )
        # While the losses are out of bounds, the checkpoint from before is the better one.
        if due and state.watch.strikes == 0:
            self._save()

    def _save(self) -> None:
        if self.checkpoints is None or self.saved_step == self.state.step:
            return
        self._require_finite_weights()
        self.checkpoints.save(self.state, self.trainer)
        self.saved_step = self.state.step

    # --- reasons to stop ---------------------------------------------------------------------

    def _stop_if_diverged(self, losses: dict[str, float]) -> None:
        watched = {name: losses[name] for name in trained_losses(self.config)}
        problem = self.state.watch.update(watched, self.state.held_since is not None)
        if problem is not None:
            raise EmbeddingError(
                f"the training diverged by step {self.state.step}: {problem}", self._try_slower()
            )

    def _stop_if_late(self) -> None:
        """End the run when its time is over; at least one step is done, so that all runs end."""
        last_step = self.schedule.last_step
        if self.max_seconds is None or self.state.step >= last_step:
            return
        elapsed = self._elapsed()
        if elapsed < self.max_seconds:
            return
        self._save()
        raise EmbeddingError(
            f"the time is over after {elapsed:.0f} s, at step {self.state.step} of at most "
            f"{last_step}",
            self._kept(),
        )

    def _elapsed(self) -> float:
        """Return the time since the start, the same in all processes."""
        elapsed = torch.tensor(time.perf_counter() - self.started, dtype=torch.float64)
        return float(self.group.agree(elapsed.to(self.trainer.device)))

    def _require_finite_weights(self) -> None:
        """Refuse weights that the losses of this step could not show: they came before it."""
        trained = [*self.trainer.player.parameters, *self.trainer.extractor.parameters()]
        # One number for all: a look at each would wait for the device every time.
        norms = torch._foreach_norm([local(p.detach()) for p in trained])
        size = self.group.sum(torch.stack([norm.float() for norm in norms]).sum())
        if not math.isfinite(size):
            raise self._non_finite("weights")

    def _non_finite(self, what: str) -> EmbeddingError:
        return EmbeddingError(
            f"the {what} became non-finite at step {self.state.step}", self._try_slower()
        )

    def _try_slower(self) -> str:
        rates = "lower --model-learning-rate and --extractor-learning-rate; "
        return rates + self._kept()

    def _kept(self) -> str:
        """Say what is left of the run, and how to go on from it."""
        hint = "" if self.checkpoints is None else self.checkpoints.folder.resume_hint()
        return hint or "nothing was written"
