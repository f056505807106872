"""Training in one stage or in two: a pair code first, in adapters, then the rest in all weights.

A table of random signs is learned only by large steps. Taken by all weights they cost fidelity
that is never quite won back; taken by adapters alone they leave the other marks in few directions,
where pruning finds them. So each mark is learned where it does best, and what was learned first is
kept by the same loss.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.parallel import Group
from nsmark.embedding.progress import ProgressCallback, TrainingResult
from nsmark.embedding.trainer import Trainer
from nsmark.models.encoder import Encoder
from nsmark.payload.payload import WatermarkPayload

if TYPE_CHECKING:
    from nsmark.embedding.checkpoint import Checkpoints

PAIRS, MARKS = "pairs", "marks"
_PAIR_STRICTNESS = 30.0
"""What the pair code's own weights are multiplied by at the end of either stage."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the training."""

    name: str
    config: EmbeddingConfig


def training_stages(config: EmbeddingConfig) -> tuple[Stage, ...]:
    """Return the stages that settings ask for."""
    if not config.pairs_first or "pairs" not in config.marks:
        return (Stage(MARKS, config),)
    pairs = replace(
        config,
        marks=("paper", "pairs"),
        method="lora",
        model_learning_rate=config.pair_learning_rate,
        cooldown_steps=config.pair_cooldown_steps,
        cooldown_fidelity=_PAIR_STRICTNESS,
        fidelity_weight=1.0,
        # The trigger waits: its texts change nothing yet.
        model_match_weight=0.0,
        spread_weight=0.0,
        decorrelation_weight=0.0,
        pruned_weight=0.0,
        pruned_trigger_weight=0.0,
        min_triggered=0.0,
        max_clean=1.0,
    )
    factor = _PAIR_STRICTNESS / max(1.0, config.cooldown_fidelity)
    rest = replace(
        config,
        pair_keep_weight=config.pair_keep_weight * factor,
        pair_alone_weight=config.pair_alone_weight * factor,
    )
    return Stage(PAIRS, pairs), Stage(MARKS, rest)


@dataclass(frozen=True, slots=True)
class Trained:
    """The marked model and how each stage went."""

    model: Encoder
    results: tuple[TrainingResult, ...]

    @property
    def last(self) -> TrainingResult:
        """The stage that trained the extractor."""
        return self.results[-1]


def train(
    model: Encoder,
    payload: WatermarkPayload,
    corpus: Sequence[str],
    config: EmbeddingConfig,
    *,
    group: Group | None = None,
    device: torch.device | None = None,
    checkpoints: Checkpoints | None = None,
    max_seconds: float | None = None,
    unshown: Callable[[Trainer], Sequence[str]] | None = None,
    on_progress: ProgressCallback | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Trained:
    """Train all stages; the arguments are those of :class:`Trainer` and of its ``run``.

    Args:
        model: What is marked, in place.
        payload: What follows from the signature.
        corpus: Training texts.
        config: Settings.
        group: The processes that train together.
        device: Where to compute.
        checkpoints: Where to save, and whether to resume.
        max_seconds: Save and stop after so long, all stages together.
        unshown: Which marks the texts of a verifier do not show, asked where the last stage ends.
        on_progress: Told after every step of a stage.
        on_stage: Told the name of a stage when it begins.
    """
    started, results = time.perf_counter(), []
    planned = training_stages(config)
    stages = list(_left(planned, checkpoints))
    # The reference is the model before any of it, also where a run goes on in its second stage.
    reference = copy.deepcopy(model) if len(planned) > 1 else None
    for number, stage in enumerate(stages):
        if on_stage is not None:
            on_stage(stage.name)
        trainer = Trainer(
            model,
            payload,
            corpus,
            stage.config,
            group=group,
            device=device,
            reference=reference if stage.name == MARKS else None,
        )
        own = None
        if checkpoints is not None:
            own = replace(
                checkpoints,
                stage=stage.name,
                follows=number > 0,
                resume=checkpoints.resume and number == 0,
            )
        left = None if max_seconds is None else max_seconds - (time.perf_counter() - started)
        results.append(
            trainer.run(
                on_progress,
                checkpoints=own,
                max_seconds=left,
                unshown=unshown if stage.name == MARKS else None,
                keep_last=number < len(stages) - 1,
            )
        )
        model = trainer.finished()
    return Trained(model, tuple(results))


def _left(stages: tuple[Stage, ...], checkpoints: Checkpoints | None) -> Iterator[Stage]:
    """Yield the stages that are not over yet."""
    begun = checkpoints.stage_to_resume() if checkpoints is not None else None
    skipping = begun is not None and begun in {stage.name for stage in stages}
    for stage in stages:
        skipping = skipping and stage.name != begun
        if not skipping:
            yield stage
