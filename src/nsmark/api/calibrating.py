"""Filling a key with controls: what innocent models measure under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nsmark.api.opening import AnySuspect
from nsmark.api.population import CalibrationSettings, ControlPopulation
from nsmark.errors import EvidenceError, KeyFileError, NsmarkError
from nsmark.identity.keys import Identity
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.folder import model_digest
from nsmark.verification.controls import Control, Controls, controls_like
from nsmark.verification.evidence import Evidence
from nsmark.verification.separation import Separation, separations
from nsmark.verification.thresholds import Calibration, calibrate
from nsmark.verification.verdict import Decision, refusal_by_controls

ModelCallback = Callable[[int, int, str], None]
"""Told how many models are measured, of how many, and which comes next."""


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The new key, and what it rests on."""

    key: WatermarkKey
    calibration: Calibration
    controls: list[Evidence]
    thefts: list[Evidence] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """Of the simulated thefts, by the lines just drawn."""
    separations: list[Separation] = field(default_factory=list)
    compared: list[Control] = field(default_factory=list)
    """The controls of full rank, which the lines were drawn from."""
    not_made: list[str] = field(default_factory=list)
    """Controls that were asked for and could not be made, with the reason."""

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
            "not_made": self.not_made,
        }


def _shown(measured: Evidence) -> dict[str, Any]:
    return {"name": measured.suspect, "rank": measured.rank, **measured.counted.to_mapping()}


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

    That the model of another owner could not be made is no error: the result says so.
    """
    settings = settings or CalibrationSettings()
    if identity.public_key != key.signed_claim.public_key:
        raise KeyFileError("the key belongs to another identity", "give the owner's .pem file")
    if owner_model is not None and model_digest(owner_model) != key.model_digest:
        raise KeyFileError(
            f"{owner_model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
    population = ControlPopulation(key, device, texts, settings)
    jobs = [
        *population.jobs(reference, "reference", innocent=True),
        *population.given(clean),
    ]
    by_another = population.by_another(reference) if settings.other_owner else None
    if by_another is not None:
        jobs.append(by_another)
    stolen = [] if owner_model is None else population.jobs(owner_model, "marked", innocent=False)
    total = len(jobs) + len(stolen)
    controls: list[Evidence] = []
    not_made: list[str] = []
    for number, (name, run) in enumerate(jobs):
        if on_model is not None:
            on_model(number, total, name)
        try:
            answers = run()
        except NsmarkError as error:
            # Minutes of measuring are not lost for one model whose training went wrong.
            if by_another is None or run is not by_another[1]:
                raise
            not_made.append(f"{name}: not made: {error}")
            continue
        controls += population.controls(name, answers)
    measured = [Control.of(each) for each in controls]
    refusal = refusal_by_controls(measured)
    if refusal is not None:
        raise EvidenceError(
            f"a control carries the mark: {refusal}",
            "give models that were not made from the marked one",
        )
    rank = population.owner.triggered.rank
    compared = controls_like(measured, rank, rank)
    calibration = calibrate(compared, settings.rate, num_bits=key.configuration.num_bits)
    assert calibration is not None  # noqa: S101 - the reference itself is a control
    thefts: list[Evidence] = []
    for number, (name, run) in enumerate(stolen, len(jobs)):
        if on_model is not None:
            on_model(number, total, name)
        thefts += population.thefts(name, run())
    if on_model is not None:
        on_model(total, total, "done")
    return CalibrationResult(
        key=replace(key, controls=tuple(each.record() for each in measured)).sealed_by(identity),
        calibration=calibration,
        controls=controls,
        thefts=thefts,
        decisions=[population.judged(theft, Controls(measured)) for theft in thefts],
        separations=separations(compared, [Control.of(theft) for theft in thefts]),
        compared=compared,
        not_made=not_made,
    )
