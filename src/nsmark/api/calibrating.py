"""Filling a key with controls: what innocent models measure under it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsmark.alterations.outputs import OUTPUT_ALTERATIONS, principal_cut, random_cut
from nsmark.api.opening import AnySuspect, Opening, basis_on
from nsmark.errors import EvidenceError, KeyFileError, MissingExtraError
from nsmark.identity.keys import Identity
from nsmark.keyfile.schema import ControlRecord, WatermarkKey
from nsmark.models.folder import model_digest
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.calibrated_rule import decide_calibrated, key_flaw
from nsmark.verification.calibration import (
    DEFAULT_RATE,
    Calibration,
    calibrate,
    controls_like,
)
from nsmark.verification.control import CHANGED, Control, control_of
from nsmark.verification.controls import RANK
from nsmark.verification.decide import Decision
from nsmark.verification.measure import Evidence, Yardstick, ask
from nsmark.verification.separation import Separation, separations

if TYPE_CHECKING:
    from nsmark.alterations.weights import WeightChange
    from nsmark.models.encoder import Encoder

ModelCallback = Callable[[int, int, str], None]
"""Told how many models are measured, of how many, and which comes next."""
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
            triggered=self.evidence.triggered.to_mapping() | {RANK: float(self.evidence.rank)},
            untriggered=self.evidence.untriggered.to_mapping(),
        )


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The new key, and what it rests on."""

    key: WatermarkKey
    calibration: Calibration
    controls: list[Measured]
    thefts: list[Measured] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """Of the simulated thefts, by the lines just drawn."""
    separations: list[Separation] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """Return a document."""
        return {
            "key_id": self.key.key_id,
            "thresholds": self.calibration.to_mapping(),
            "controls": [_shown(measured) for measured in self.controls],
            "thefts": [
                _shown(measured)
                | {"verdict": str(decision.verdict), "passed": list(decision.passed)}
                for measured, decision in zip(self.thefts, self.decisions, strict=True)
            ],
            "separation": [each.to_mapping() for each in self.separations],
        }


def _shown(measured: Measured) -> dict[str, Any]:
    values = measured.evidence.triggered.to_mapping()
    return {"name": measured.name, "rank": measured.evidence.rank, **values}


def calibrate_key(
    key: WatermarkKey,
    identity: Identity,
    reference: Path,
    *,
    texts: Sequence[str],
    clean: Sequence[AnySuspect] = (),
    owner_model: Path | None = None,
    settings: CalibrationSettings | None = None,
    device: str = "auto",
    on_model: ModelCallback | None = None,
) -> CalibrationResult:
    """Measure a population of innocent models, draw the lines and seal the key anew.

    Args:
        key: The key.
        identity: The owner's: it seals the new key.
        reference: The unmarked model that the marked one was made from.
        texts: What controls are fine-tuned on.
        clean: Further innocent models.
        owner_model: The marked model: thefts are then simulated, to see what would be found.
        settings: How many controls, and how they are made.
        device: Where models run.
        on_model: Told before every model.

    Raises:
        KeyFileError: The identity did not make this key, or ``owner_model`` is another model.
        EvidenceError: A control carries the mark.
    """
    settings = settings or CalibrationSettings()
    if identity.public_key != key.signed_claim.public_key:
        raise KeyFileError("the key belongs to another identity", "give the owner's .pem file")
    if owner_model is not None and model_digest(owner_model) != key.model_digest:
        raise KeyFileError(
            f"{owner_model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
    gauge = _Gauge(key, device, texts, settings)
    jobs = [
        *gauge.jobs(reference, "reference", innocent=True),
        *gauge.given(clean),
    ]
    stolen = [] if owner_model is None else gauge.jobs(owner_model, "marked", innocent=False)
    total = len(jobs) + len(stolen)
    controls: list[Measured] = []
    for number, (name, run) in enumerate(jobs):
        if on_model is not None:
            on_model(number, total, name)
        controls += gauge.controls(name, run())
    _refuse_marked(controls)
    calibration = calibrate(
        controls_like([each.control for each in controls], gauge.rank, gauge.rank), settings.rate
    )
    assert calibration is not None  # noqa: S101 - the reference itself is a control
    thefts: list[Measured] = []
    for number, (name, run) in enumerate(stolen, len(jobs)):
        if on_model is not None:
            on_model(number, total, name)
        thefts += gauge.thefts(name, run())
    if on_model is not None:
        on_model(total, total, "done")
    flaw = key_flaw(gauge.yardstick)
    plain = [each.control for each in controls]
    return CalibrationResult(
        key=replace(key, controls=tuple(each.record() for each in controls)).sealed_by(identity),
        calibration=calibration,
        controls=controls,
        thefts=thefts,
        decisions=[gauge.judged(theft, plain, flaw) for theft in thefts],
        separations=separations(
            controls_like(plain, gauge.rank, gauge.rank), [theft.control for theft in thefts]
        ),
    )


Job = tuple[str, Callable[[], RecordedOutputs]]


class _Gauge:
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
            from nsmark.alterations.finetuning import Finetuning
            from nsmark.alterations.population import broken_alterations, kept_alterations
            from nsmark.models.layers import blocks
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

    def controls(self, name: str, answers: RecordedOutputs) -> list[Measured]:
        """Measure an innocent model as it is and cut to every lower rank."""
        found = [self._measured(name, answers)]
        rank = found[0].evidence.rank // 2
        while rank >= 1:
            for how, cut in (("PCA", principal_cut(rank)), ("chance", random_cut(rank))):
                change = cut(answers.triggered, np.random.default_rng(self._settings.seed))
                cut_answers = RecordedOutputs(
                    "", change(answers.triggered), change(answers.untriggered)
                )
                cut_name = f"{name}{CHANGED}cut to {rank} by {how}"
                found.append(self._measured(cut_name, cut_answers))
            rank //= 4
        return found

    def thefts(self, name: str, answers: RecordedOutputs) -> list[Measured]:
        """Measure a stolen model as it is and behind changes of its outputs."""
        found = [self._measured(name, answers)]
        for how in THEFT_CHANGES:
            rng = np.random.default_rng(self._settings.seed)
            change = OUTPUT_ALTERATIONS[how].draw(answers.triggered, rng)
            changed = RecordedOutputs("", change(answers.triggered), change(answers.untriggered))
            found.append(self._measured(f"{name}{CHANGED}{how}", changed))
        return found

    def judged(self, suspect: Measured, controls: Sequence[Control], flaw: str | None) -> Decision:
        """Return what a verifier with these controls would say."""
        evidence = suspect.evidence
        like = controls_like(controls, evidence.rank, self.rank)
        lines = calibrate(like, self._settings.rate, suspect=evidence.untriggered)
        return decide_calibrated(evidence, lines, controls, flaw, self.rank)

    def _measured(self, name: str, answers: RecordedOutputs) -> Measured:
        # As an endpoint would answer.
        parts = (answers.triggered, answers.untriggered)
        rounded = (part.astype(np.float32).astype(np.float64) for part in parts)
        return Measured(name, self.yardstick.compare(RecordedOutputs(name, *rounded)))


def _refuse_marked(controls: Sequence[Measured]) -> None:
    for control in controls:
        if (control.evidence.triggered.extraction_rate or 0.0) >= 0.5:
            raise EvidenceError(
                f"the control {control.name!r} carries the mark",
                "give models that were not made from the marked one",
            )
