"""Key + suspect → Evidence: numbers only, no opinion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.core.extraction import derived_extraction_rate, derived_p_value, extraction_rate
from nsmark.core.mlp import mlp_forward
from nsmark.core.null_space import (
    check_matrix,
    invariant_matching_degree,
    live_rows,
    matching_degree,
    null_space_basis,
)
from nsmark.core.statistics import (
    alignment,
    centred_matching_degree,
    predictability,
    subspace_overlap,
    unit_columns,
)
from nsmark.errors import EvidenceError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.base import BatchCallback, Suspect
from nsmark.suspects.recorded import RecordedOutputs

BasisFunction = Callable[[NDArray[np.floating]], NDArray[np.float64]]
"""Computes a null basis: :func:`null_space_basis`, or the same on an accelerator."""

# Outputs that differ between texts by less than this share of their size are constant: float32
# noise around one vector lies below it, any real model far above.
_CONSTANT_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """All comparisons on one set of texts; None where a value cannot be had."""

    extraction_rate: float | None = None
    derived_extraction_rate: float | None = None
    derived_p_value: float | None = None
    pair_code_rate: float | None = None
    pair_code_p_value: float | None = None
    matching_degree: float | None = None
    invariant_matching_degree: float | None = None
    centred_matching_degree: float | None = None
    projective_matching_degree: float | None = None
    subspace_overlap: float | None = None
    predictability: float | None = None
    alignment_gap: float | None = None
    aligned_subspace_overlap: float | None = None
    aligned_predictability: float | None = None

    def to_mapping(self) -> dict[str, float | None]:
        """Return the values by name."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, float | None]) -> Statistics:
        """Read values by name; names this version does not know are left out."""
        return cls(**{name: values.get(name) for name in STATISTIC_NAMES})


STATISTIC_NAMES = tuple(field.name for field in fields(Statistics))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a suspect answered, compared with what the key holds."""

    suspect: str
    triggered: Statistics
    untriggered: Statistics
    num_texts: int
    output_dim: int
    null_dim: int
    dead_rows: int
    notes: tuple[str, ...]
    """Why a value could not be had, in sentences."""


def ask(
    key: WatermarkKey, suspect: Suspect | RecordedOutputs, on_batch: BatchCallback | None = None
) -> RecordedOutputs:
    """Put the key's texts to a suspect, or take its recorded answers."""
    if isinstance(suspect, RecordedOutputs):
        return suspect
    payload = key.payload()
    triggered, untriggered = payload.triggered_texts(), list(payload.verification_texts)
    # All at once, so that whoever serves the suspect cannot tell the kinds by when they come.
    outputs = suspect.outputs([*triggered, *untriggered], on_batch).astype(np.float64)
    return RecordedOutputs(suspect.name, outputs[: len(triggered)], outputs[len(triggered) :])


def measure(
    key: WatermarkKey,
    suspect: Suspect | RecordedOutputs,
    on_batch: BatchCallback | None = None,
    basis_of: BasisFunction = null_space_basis,
) -> Evidence:
    """Ask a suspect the key's texts and compute every statistic.

    Raises:
        EvidenceError: The answers cannot be measured: wrong number of rows, NaN, constant.
    """
    answers = ask(key, suspect, on_batch)
    for name, outputs in (("triggered", answers.triggered), ("untriggered", answers.untriggered)):
        _check_outputs(outputs, name, key.configuration.num_texts)
    if answers.triggered.shape[1] != answers.untriggered.shape[1]:
        raise EvidenceError(
            "triggered and untriggered outputs have different dimensions",
            "measure both on the same model",
        )
    notes: list[str] = []
    triggered, null_dim = _statistics(key, key.owner_triggered, answers.triggered, notes, basis_of)
    untriggered, _ = _statistics(key, key.owner_untriggered, answers.untriggered, notes, basis_of)
    output_dim = answers.triggered.shape[1]
    return Evidence(
        suspect=answers.name,
        triggered=triggered,
        untriggered=untriggered,
        num_texts=key.configuration.num_texts,
        output_dim=output_dim,
        null_dim=null_dim,
        dead_rows=output_dim - int(live_rows(_rescaled(answers.triggered).T).sum()),
        notes=tuple(dict.fromkeys(notes)),
    )


def _check_outputs(outputs: NDArray[np.float64], name: str, num_texts: int) -> None:
    if len(outputs) != num_texts:
        raise EvidenceError(
            f"there are {len(outputs)} {name} outputs, the key asks {num_texts} texts",
            "answer exactly the key's texts: see `nsmark inspect KEY --queries FILE`",
        )
    values = _rescaled(check_matrix(outputs, f"{name} outputs"))
    scale = np.abs(values).max()
    if np.ptp(values, axis=0).max() <= _CONSTANT_TOLERANCE * scale:
        raise EvidenceError(
            f"every text gets the same {name} output", "the model ignores its input: check it"
        )


def _rescaled(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide by the power of two next to the largest entry, which is exact.

    Only the extractor cares for the size of outputs. A thief who returns them 1e200 times as
    large must not make squares overflow.
    """
    _, exponent = np.frexp(np.abs(outputs).max())
    return np.asarray(np.ldexp(outputs, -exponent))


def owner_statistics(key: WatermarkKey) -> Statistics:
    """Return what thresholds need of the owner's own stored outputs: extraction and degree."""
    matrix = key.owner_triggered.T.astype(np.float64)
    return Statistics(
        extraction_rate=_extraction(key, key.owner_triggered),
        invariant_matching_degree=invariant_matching_degree(matrix, null_space_basis(matrix)),
    )


def _extraction(key: WatermarkKey, outputs: NDArray[np.floating]) -> float:
    config = key.configuration
    # Outputs or weights beyond float32 give infinity or NaN, which no bit is read from.
    with np.errstate(over="ignore", invalid="ignore"):
        mapped = mlp_forward(outputs, key.extractor)
    return extraction_rate(mapped, key.signature, config.num_bits, config.spread_factor)


def _statistics(
    key: WatermarkKey,
    owner_outputs: NDArray[np.float32],
    suspect_outputs: NDArray[np.float64],
    notes: list[str],
    basis_of: BasisFunction,
) -> tuple[Statistics, int]:
    owner = owner_outputs.T.astype(np.float64)
    suspect = _rescaled(suspect_outputs).T
    basis = basis_of(owner)  # never a stored basis: a rotated one moves the degree
    statistics = Statistics(
        matching_degree=matching_degree(suspect, basis),
        invariant_matching_degree=invariant_matching_degree(suspect, basis),
        centred_matching_degree=_if_enough(centred_matching_degree, owner, suspect, notes),
        subspace_overlap=subspace_overlap(owner, suspect),
        predictability=_if_enough(predictability, owner, suspect, notes),
    )
    if statistics.subspace_overlap is None:
        notes.append("overlap needs more texts than dimensions: query more texts")
    if suspect.shape[0] == key.configuration.output_dim:
        num_bits = key.configuration.num_bits
        statistics = replace(
            statistics,
            extraction_rate=_extraction(key, suspect_outputs),
            derived_extraction_rate=derived_extraction_rate(suspect.T, key.signature, num_bits),
            derived_p_value=derived_p_value(suspect.T, key.signature, num_bits),
        )
    else:
        notes.append(
            f"the suspect has {suspect.shape[0]} dimensions, the key {owner.shape[0]}: "
            "nothing can be extracted, the null space still tells"
        )
    return _add_aligned(statistics, owner, suspect, basis, notes, basis_of), basis.shape[1]


def _if_enough(
    statistic: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    owner: NDArray[np.float64],
    suspect: NDArray[np.float64],
    notes: list[str],
) -> float | None:
    """Return a statistic that wants more texts than the null space does, or say why not."""
    try:
        return statistic(owner, suspect)
    except EvidenceError as error:
        notes.append(f"{error}: {error.hint}")
        return None


def _add_aligned(
    statistics: Statistics,
    owner: NDArray[np.float64],
    suspect: NDArray[np.float64],
    basis: NDArray[np.float64],
    notes: list[str],
    basis_of: BasisFunction,
) -> Statistics:
    """Compare after undoing a scale and sign per text; both sides in unit-length outputs.

    Where the owner's outputs already have unit length, one alignment serves both forms.
    """
    if not suspect.any(axis=0).all() or not owner.any(axis=0).all():
        notes.append("some texts were answered by zero: no alignment of scales")
        return statistics
    units = unit_columns(suspect)
    scales, gap = alignment(units, basis)
    projective = matching_degree(units * scales, basis)
    owner_units = unit_columns(owner)
    if not np.allclose(owner, owner_units, rtol=0, atol=1e-6):
        scales, gap = alignment(units, basis_of(owner_units))
    aligned = units * scales
    return replace(
        statistics,
        projective_matching_degree=projective,
        alignment_gap=gap,
        aligned_subspace_overlap=subspace_overlap(owner_units, aligned),
        aligned_predictability=_if_enough(predictability, owner_units, aligned, notes),
    )
