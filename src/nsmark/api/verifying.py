"""Testing a suspect against a key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from nsmark.core.null_space import null_space_basis
from nsmark.core.texts import normalise_text
from nsmark.errors import EvidenceError, MissingExtraError
from nsmark.keyfile.schema import Thresholds, WatermarkKey
from nsmark.payload.word_list import WordList
from nsmark.report.report import Report
from nsmark.report.versions import library_versions
from nsmark.suspects.base import BatchCallback, Suspect, open_suspect
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import owner_controls
from nsmark.verification.decide import Decision, Verdict, decide, paper_thresholds
from nsmark.verification.derivations import check_derivations
from nsmark.verification.measure import (
    BasisFunction,
    Statistics,
    measure,
    owner_statistics,
)


def verify(
    key: WatermarkKey,
    suspect: str | Path | Suspect | RecordedOutputs,
    *,
    controls: Sequence[str | Path | Suspect | RecordedOutputs] = (),
    independent: bool = False,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
    device: str = "auto",
    on_batch: BatchCallback | None = None,
) -> Report:
    """Test whether a suspect carries a key's watermark, by the paper's rule.

    Args:
        key: A key from :func:`nsmark.keyfile.read_key`.
        suspect: Address or opened suspect.
        controls: Innocent models of the verifier's own; the thresholds then come from them.
        independent: Trust nothing of the owner's: without ``controls``, or with a pool or word
            list that is not at hand, nothing can be shown.
        pool: The published pool the key names, if it is not the built-in one.
        word_list: The published word list the key names, if it is not the package's.
        device: Where local models run.
        on_batch: Told how many texts are done, and of how many.

    Raises:
        KeyFileError: The key is forged: refused before anything is asked.
    """
    started = time.perf_counter()
    if pool is not None:
        pool = [text for text in map(normalise_text, pool) if text]
    unchecked = check_derivations(key, pool=pool, word_list=word_list)
    thresholds, measured = _calibration(key, controls, independent, device, on_batch)
    name = suspect.name if hasattr(suspect, "name") and not isinstance(suspect, Path) else suspect
    evidence = None
    try:
        evidence = measure(key, _opened(key, suspect, device), on_batch, basis_on(device))
        decision = decide(evidence, thresholds, measured)
        if independent and unchecked:
            decision = Decision(Verdict.NOT_SHOWN, ("the key's derivations were not checked",))
    except EvidenceError as error:
        decision = Decision(Verdict.COULD_NOT_MEASURE, (str(error), error.hint))
    return Report(
        decision=decision,
        rule="paper",
        evidence=evidence,
        thresholds=thresholds,
        calibrated_by=None if thresholds is None else "verifier" if controls else "owner",
        unchecked=tuple(unchecked),
        suspect=str(name),
        key_id=key.key_id,
        claim=key.signed_claim.claim.to_mapping(),
        versions=library_versions(),
        seconds=time.perf_counter() - started,
    )


def basis_on(device: str) -> BasisFunction:
    """Return the null-basis computation for a device; plain ``auto`` and ``cpu`` need no torch."""
    if not device.startswith("cuda"):
        return null_space_basis
    try:
        from nsmark.models.loading import resolve_device
        from nsmark.models.null_space import null_space_basis_on_device
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    resolve_device(device)
    return lambda matrix: null_space_basis_on_device(matrix, device)


def _opened(
    key: WatermarkKey, suspect: str | Path | Suspect | RecordedOutputs, device: str
) -> Suspect | RecordedOutputs:
    if not isinstance(suspect, str | Path):
        return suspect
    config = key.configuration
    return open_suspect(
        suspect,
        pooling=config.pooling,
        normalise=config.normalise,
        max_length=config.max_length,
        device=device,
    )


def _calibration(
    key: WatermarkKey,
    controls: Sequence[str | Path | Suspect | RecordedOutputs],
    independent: bool,
    device: str,
    on_batch: BatchCallback | None,
) -> tuple[Thresholds | None, list[tuple[str, Statistics]]]:
    """Return thresholds and the controls behind them: the verifier's, else the owner's."""
    owner = owner_statistics(key)
    if controls:
        measured = [measure(key, _opened(key, control, device), on_batch) for control in controls]
        named = [(evidence.suspect, evidence.triggered) for evidence in measured]
    elif independent:
        return None, []
    else:
        named = owner_controls(key)
    # Never the numbers written in the key: they follow from its outputs and its controls, and a
    # key that says otherwise was made to accuse.
    return paper_thresholds(owner, [statistics for _, statistics in named]), named
