"""Making models from a model, asking them, and measuring what they answer under a key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nsmark.api.opening import AnySuspect, Opening, basis_on
from nsmark.api.other_owner import marked_by_another
from nsmark.embedding.config import EmbeddingConfig
from nsmark.errors import MissingExtraError
from nsmark.keyfile.document import ControlRecord
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.outputs import OUTPUT_ALTERATIONS, Draw, principal_cut, random_cut
from nsmark.verification.calibrated_rule import decide_calibrated
from nsmark.verification.calibration import DEFAULT_RATE, calibrate, controls_like
from nsmark.verification.control import CHANGED, Control, control_of
from nsmark.verification.controls import RANK
from nsmark.verification.decide import Decision
from nsmark.verification.measure import Evidence, Yardstick, ask, output_rank
from nsmark.verification.side_by_side import all_of

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


@dataclass(frozen=True, slots=True)
class Measured:
    """One model under a key."""

    name: str
    evidence: Evidence

    @property
    def control(self) -> Control:
        """As a control."""
        return control_of(self.evidence, self.name)

    def record(self) -> ControlRecord:
        """As a key stores it."""
        return ControlRecord(
            name=self.name,
            triggered=self.control.triggered.to_mapping() | {RANK: float(self.evidence.rank)},
            untriggered=self.control.untriggered.to_mapping(),
        )


Job = tuple[str, Callable[[], RecordedOutputs]]


class Gauge:
    """Makes models, asks them, and measures what they answer."""

    def __init__(
        self,
        key: WatermarkKey,
        device: str,
        texts: Sequence[str],
        settings: CalibrationSettings,
    ) -> None:
        self._key, self._device, self._texts, self._settings = key, device, texts, settings
        self.yardstick = Yardstick(key, basis_on(device))
        self.rank = self.yardstick.triggered.rank

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
            asked = self.yardstick.questions
            outputs = model.eval().encode([*asked.triggered, *asked.untriggered])
            count = len(asked.triggered)
            parts = (outputs[:count], outputs[count:])
            return RecordedOutputs("", *(part.astype(np.float64) for part in parts))

        return run

    def given(self, clean: Sequence[AnySuspect]) -> Iterator[Job]:
        """Return the innocent models that were given."""
        opening = Opening(self._key, self._device)
        for suspect in clean:

            def run(suspect: AnySuspect = suspect) -> RecordedOutputs:
                return ask(self.yardstick.questions, opening.open(suspect))

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
                return ask(self.yardstick.questions, Opening(self._key, self._device).open(folder))

        return "reference, marked by another owner", run

    def controls(self, name: str, answers: RecordedOutputs) -> list[Measured]:
        """Measure an innocent model as it is and cut to every lower rank."""
        cuts: list[tuple[str, Draw]] = []
        rank = output_rank(answers.triggered) // 2
        while rank >= 1:
            cuts.append((f"cut to {rank} by PCA", principal_cut(rank)))
            cuts.append((f"cut to {rank} by chance", random_cut(rank)))
            rank //= 4
        return self._all_changed(name, answers, cuts)

    def thefts(self, name: str, answers: RecordedOutputs) -> list[Measured]:
        """Measure a stolen model as it is and behind changes of its outputs."""
        changes = [(how, OUTPUT_ALTERATIONS[how].draw) for how in THEFT_CHANGES]
        return self._all_changed(name, answers, changes)

    def judged(self, suspect: Measured, controls: Sequence[Control], flaw: str | None) -> Decision:
        """Return what a verifier with these controls would say."""
        evidence = suspect.evidence
        like = controls_like(controls, evidence.rank, self.rank)
        lines = calibrate(
            like,
            self._settings.rate,
            suspect=evidence.untriggered,
            num_bits=self._key.configuration.num_bits,
        )
        return decide_calibrated(evidence, lines, controls, flaw, self.rank)

    def _all_changed(
        self, name: str, answers: RecordedOutputs, changes: Sequence[tuple[str, Draw]]
    ) -> list[Measured]:
        """Measure a model as it is, and behind each of some changes of its outputs."""

        def measured(how: str, draw: Draw) -> Measured:
            change = draw(answers.triggered, np.random.default_rng(self._settings.seed))
            changed = RecordedOutputs("", change(answers.triggered), change(answers.untriggered))
            return self._measured(f"{name}{CHANGED}{how}", changed)

        calls = [partial(self._measured, name, answers)]
        return all_of([*calls, *(partial(measured, how, draw) for how, draw in changes)])

    def _measured(self, name: str, answers: RecordedOutputs) -> Measured:
        # As an endpoint would answer.
        parts = (answers.triggered, answers.untriggered)
        rounded = (part.astype(np.float32).astype(np.float64) for part in parts)
        return Measured(name, self.yardstick.compare(RecordedOutputs(name, *rounded)))
