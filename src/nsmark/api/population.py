"""Models made from a model: what they answer under a key, and what a verifier would say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nsmark.api.opening import AnySuspect, Opening, basis_on
from nsmark.api.other_owner import marked_by_another
from nsmark.corpus import pool_texts
from nsmark.embedding.config import EmbeddingConfig
from nsmark.errors import MissingExtraError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.word_list import published_word_list
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.outputs import OUTPUT_ALTERATIONS, Draw, principal_cut, random_cut
from nsmark.verification.controls import CHANGED, Controls
from nsmark.verification.derivations import pair_doubt
from nsmark.verification.evidence import Evidence, OwnerReference, ask
from nsmark.verification.side_by_side import run_all
from nsmark.verification.statistics import output_rank
from nsmark.verification.thresholds import DEFAULT_RATE
from nsmark.verification.verdict import Decision, judge

if TYPE_CHECKING:
    from nsmark.models.encoder import Encoder
    from nsmark.transforms.weights import WeightChange

THEFT_CHANGES = (
    "linear map",
    "linear map, unit length",
    "linear map, scale and sign per text",
    "whitened",
    "10 % noise per dimension, linear map",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How many controls, and how they are made."""

    num_tasks: int = 3
    """Fine-tuned copies."""
    steps: int = 60
    """Training steps of each."""
    seed: int = 0
    rate: float = DEFAULT_RATE
    """False accusations allowed."""
    other_owner: bool = False
    """Whether the reference is also marked for a made-up owner and measured: a control that has a
    mark, only not this one. It takes as long as embedding."""
    embedding: EmbeddingConfig | None = None
    """How it is marked; by default as usual, with the marks and the extractor of the key."""


Job = tuple[str, Callable[[], RecordedOutputs]]


class ControlPopulation:
    """Makes innocent models and thefts, asks them as a verifier would, and measures them."""

    def __init__(
        self,
        key: WatermarkKey,
        device: str,
        texts: Sequence[str],
        settings: CalibrationSettings,
    ) -> None:
        self._key, self._device, self._texts, self._settings = key, device, texts, settings
        self.owner = OwnerReference(key, basis_on(device))
        # As for a verifier who has nothing but the package.
        self._pair_doubt = pair_doubt(
            key,
            pool=pool_texts(),
            pool_is_published=True,
            is_fresh=False,
            is_trigger_checked=published_word_list().digest == key.word_list_digest,
        )

    def jobs(self, folder: Path, name: str, *, innocent: bool) -> list[Job]:
        """Return all models made from one, to be measured later."""
        try:
            from nsmark.models.layers import blocks
            from nsmark.transforms.finetuning import Finetuning
            from nsmark.transforms.population import broken_alterations, kept_alterations
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "torch") from error
        settings, config = self._settings, self._key.configuration
        opened = Opening(self._key, self._device).open(folder)
        encoder: Encoder = opened.encoder  # type: ignore[union-attr]
        changes = kept_alterations(
            self._texts,
            num_tasks=settings.num_tasks,
            # A thief's tasks are not those of the controls.
            seed=settings.seed + (0 if innocent else 1),
            finetuning=Finetuning(steps=settings.steps),
        )
        if innocent:
            changes |= broken_alterations(len(blocks(encoder.network)), seed=settings.seed)
        jobs = [(f"{name}, {how}", self._job(encoder, change)) for how, change in changes.items()]
        if innocent:
            for pooling in ("first", "last", "mean", "max"):
                if pooling != config.pooling:
                    jobs.append((f"{name}, pooling {pooling}", self._job(encoder, None, pooling)))
        return jobs

    def _job(
        self, encoder: Encoder, change: WeightChange | None, pooling: str | None = None
    ) -> Callable[[], RecordedOutputs]:
        def run() -> RecordedOutputs:
            model = copy.deepcopy(encoder)
            if change is not None:
                change(model)
            if pooling is not None:
                model.pooling = pooling
            asked = self.owner.questions
            return asked.sorted_out("", model.eval().encode(asked.texts).astype(np.float64))

        return run

    def given(self, clean: Sequence[AnySuspect]) -> Iterator[Job]:
        """Return the innocent models that were given."""
        opening = Opening(self._key, self._device)
        for suspect in clean:

            def run(suspect: AnySuspect = suspect) -> RecordedOutputs:
                return ask(self.owner.questions, opening.open(suspect))

            yield str(getattr(suspect, "name", suspect))[:150], run

    def by_another(self, reference: Path) -> Job:
        """Return the reference as another owner would mark it."""
        settings = self._settings

        def run() -> RecordedOutputs:
            with marked_by_another(
                reference,
                self._key.configuration,
                corpus=self._texts,
                config=settings.embedding,
                seed=settings.seed,
                device=self._device,
            ) as folder:
                return ask(self.owner.questions, Opening(self._key, self._device).open(folder))

        return "reference, marked by another owner", run

    def controls(self, name: str, answers: RecordedOutputs) -> list[Evidence]:
        """Measure an innocent model as it is and cut to every lower rank."""
        cuts: list[tuple[str, Draw]] = []
        rank = output_rank(answers.triggered) // 2
        while rank >= 1:
            cuts.append((f"cut to {rank} by PCA", principal_cut(rank)))
            cuts.append((f"cut to {rank} by chance", random_cut(rank)))
            rank //= 4
        plain = self._measured(name, answers)
        # The pair code does not depend on the rank.
        return [plain, *self._changed(name, replace(answers, pair_texts=None), cuts)]

    def thefts(self, name: str, answers: RecordedOutputs) -> list[Evidence]:
        """Measure a stolen model as it is and behind changes of its outputs."""
        changes = [(how, OUTPUT_ALTERATIONS[how].draw) for how in THEFT_CHANGES]
        return [self._measured(name, answers), *self._changed(name, answers, changes)]

    def judged(self, theft: Evidence, controls: Controls) -> Decision:
        """Return what a verifier with these controls would say."""
        judged = judge(
            self.owner,
            theft,
            controls,
            rate=self._settings.rate,
            pair_doubt=self._pair_doubt,
        )
        return judged.decision

    def _changed(
        self, name: str, answers: RecordedOutputs, changes: Sequence[tuple[str, Draw]]
    ) -> list[Evidence]:
        """Measure a model behind each of some changes of its outputs."""

        def measured(how: str, draw: Draw) -> Evidence:
            change = draw(answers.triggered, np.random.default_rng(self._settings.seed))
            changed = f"{name}{CHANGED}{how}"
            return self._measured(changed, answers.changed(changed, change))

        return run_all([partial(measured, how, draw) for how, draw in changes])

    def _measured(self, name: str, answers: RecordedOutputs) -> Evidence:
        # As an endpoint would answer.
        rounded = answers.changed(name, lambda part: part.astype(np.float32).astype(np.float64))
        return self.owner.compare(rounded)
