"""Statistics: what one set of a suspect's outputs has in common with the owner's, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.core.extraction import derived_extraction_rate, derived_p_value, extraction_rate
from nsmark.core.mlp import mlp_forward
from nsmark.core.null_space import (
    invariant_matching_degree,
    matching_degree,
    null_space_basis,
    row_space_basis,
)
from nsmark.core.statistics import (
    aligned_scales,
    centred,
    centred_null_basis,
    overlap_of,
    predictability,
    unit_columns,
)
from nsmark.errors import EvidenceError, KeyFileError
from nsmark.keyfile.schema import WatermarkKey

Matrix = NDArray[np.float64]
BasisFunction = Callable[[NDArray[np.floating]], Matrix]
"""Computes a null basis: :func:`null_space_basis`, or the same on an accelerator."""

# One scale per text is chosen freely; each dimension of the suspect's outputs has to agree with
# each of the null space. With few dimensions some scales fit any model.
_LEAST_CONSTRAINTS = 3

# Scales that leave fewer of the suspect's dimensions have fitted what all its answers share, not
# the answers: it would be compared with controls of a rank that it does not have any more.
_LEAST_RANK_KEPT = 0.9
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """All comparisons on one set of texts; None where a value cannot be had."""

    extraction_rate: float | None = None
    derived_extraction_rate: float | None = None
    derived_p_value: float | None = None
    pair_code_rate: float | None = None
    pair_code_p_value: float | None = None
    pair_wager_p_value: float | None = None
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


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic that may accuse."""

    name: str
    label: str
    closeness: Callable[[float], float]
    """How close the suspect is to the owner's model, larger is closer."""
    value: Callable[[float], float]
    """The inverse of ``closeness``."""

    def of(self, statistics: Statistics) -> float | None:
        """Return the closeness a model shows, None where it could not be had."""
        found: float | None = getattr(statistics, self.name)
        return None if found is None else self.closeness(found)


def _share(name: str, label: str) -> Statistic:
    return Statistic(
        name,
        label,
        lambda value: -float(np.log(max(1 - value, _TINY))),
        lambda closeness: 1 - float(np.exp(-closeness)),
    )


EXTRACTION = Statistic("extraction_rate", "extraction rate", float, float)

STATISTICS: tuple[Statistic, ...] = (
    EXTRACTION,
    _share("predictability", "predictability"),
    _share("aligned_predictability", "predictability up to a scale per text"),
    _share("aligned_subspace_overlap", "subspace overlap up to a scale per text"),
)
"""Few, since each costs some of the error rate. Matching degrees are not among them: nearly
constant outputs of any model lie close by those. Overlap and gap say no more than what is here."""


@dataclass(frozen=True, slots=True)
class OwnerOutputs:
    """The owner's outputs on one set of texts; matrices are (output_dim, num_texts)."""

    matrix: Matrix
    basis: Matrix
    """Of the null space: always from the outputs, never a stored one, which may be rotated."""
    centred_basis: Matrix | None
    """None where too few texts are left for it."""
    space: Matrix
    """Orthonormal basis of the centred row space."""
    units: Matrix | None
    """The outputs at unit length; None where some are zero."""
    projector: Matrix
    """On the null space."""
    unit_projector: Matrix | None
    """The same for ``units``; the same object where the outputs have unit length already."""
    unit_space: Matrix | None

    @property
    def num_texts(self) -> int:
        """Texts that were answered."""
        return int(self.matrix.shape[1])

    @property
    def rank(self) -> int:
        """Dimensions that the outputs vary in."""
        return int(self.space.shape[1])


def prepare_outputs(
    outputs: NDArray[np.floating], basis_of: BasisFunction = null_space_basis
) -> OwnerOutputs:
    """Prepare outputs of shape (num_texts, output_dim)."""
    matrix = np.asarray(outputs.T, dtype=np.float64)
    if not np.ptp(matrix, axis=1).any():
        raise KeyFileError(
            "the owner's outputs are the same for every text",
            "the key holds no evidence: refuse it",
        )
    basis = basis_of(matrix)
    projector = basis @ basis.T
    space = row_space_basis(centred(matrix))
    try:
        centred_basis = centred_null_basis(matrix)
    except EvidenceError:
        centred_basis = None
    if not matrix.any(axis=0).all():
        return OwnerOutputs(matrix, basis, centred_basis, space, None, projector, None, None)
    units = unit_columns(matrix)
    if np.allclose(matrix, units, rtol=0, atol=1e-6):
        return OwnerOutputs(matrix, basis, centred_basis, space, units, projector, projector, space)
    unit_basis = basis_of(units)
    return OwnerOutputs(
        matrix,
        basis,
        centred_basis,
        space,
        units,
        projector,
        unit_basis @ unit_basis.T,
        row_space_basis(centred(units)),
    )


def compare_outputs(
    key: WatermarkKey, owner: OwnerOutputs, suspect_outputs: NDArray[np.float64], notes: list[str]
) -> tuple[Statistics, int]:
    """Return all statistics, and the rank of the suspect's outputs."""
    suspect = rescaled(suspect_outputs).T
    space = row_space_basis(centred(suspect))
    statistics = Statistics(
        matching_degree=matching_degree(suspect, owner.basis),
        invariant_matching_degree=invariant_matching_degree(suspect, owner.basis),
        subspace_overlap=overlap_of(owner.space, space),
        predictability=_predictability(owner.matrix, suspect, notes),
    )
    if owner.centred_basis is None:
        notes.append("the centred matching degree needs more texts than dimensions")
    else:
        degree = matching_degree(centred(suspect), owner.centred_basis)
        statistics = replace(statistics, centred_matching_degree=degree)
    if statistics.subspace_overlap is None:
        notes.append("overlap needs more texts than dimensions: query more texts")
    if suspect.shape[0] == key.configuration.output_dim:
        statistics = replace(statistics, **marks_in(key, suspect_outputs))
    else:
        notes.append(
            f"the suspect has {suspect.shape[0]} dimensions, the key {owner.matrix.shape[0]}: "
            "nothing can be extracted, the null space still tells"
        )
    rank = space.shape[1]
    return _add_aligned(statistics, owner, suspect, rank, notes), rank


def _predictability(
    owner: NDArray[np.float64], suspect: NDArray[np.float64], notes: list[str]
) -> float | None:
    """Return the predictability, or say why it cannot be had."""
    try:
        return predictability(owner, suspect)
    except EvidenceError as error:
        notes.append(f"{error}: {error.hint}")
        return None


def _add_aligned(
    statistics: Statistics,
    owner: OwnerOutputs,
    suspect: NDArray[np.float64],
    rank: int,
    notes: list[str],
) -> Statistics:
    """Compare after undoing a scale and sign per text; both sides in unit-length outputs.

    Where the owner's outputs already have unit length, one alignment serves both forms.
    """
    if (
        owner.units is None
        or owner.unit_projector is None
        or owner.unit_space is None
        or not suspect.any(axis=0).all()
    ):
        notes.append("some texts were answered by zero: no alignment of scales")
        return statistics
    if rank * owner.basis.shape[1] < _LEAST_CONSTRAINTS * owner.num_texts:
        notes.append(f"outputs of rank {rank} can always be scaled to fit: no alignment of scales")
        return statistics
    units = unit_columns(suspect)
    scales, gap = aligned_scales(units, owner.projector)
    projective = matching_degree(units * scales, owner.basis)
    if owner.unit_projector is not owner.projector:
        scales, gap = aligned_scales(units, owner.unit_projector)
    aligned = units * scales
    space = row_space_basis(centred(aligned))
    if space.shape[1] < _LEAST_RANK_KEPT * rank:
        notes.append(
            f"scales that fit leave {space.shape[1]} of {rank} dimensions: no alignment of scales"
        )
        return statistics
    return replace(
        statistics,
        projective_matching_degree=projective,
        alignment_gap=gap,
        aligned_subspace_overlap=overlap_of(owner.unit_space, space),
        aligned_predictability=_predictability(owner.units, aligned, notes),
    )


def marks_in(key: WatermarkKey, outputs: NDArray[np.floating]) -> dict[str, float]:
    """Return what is read from outputs of the key's dimension, by the statistic's name."""
    config = key.configuration
    sized = rescaled(outputs.astype(np.float64))
    return {
        "extraction_rate": read_signature(key, outputs),
        "derived_extraction_rate": derived_extraction_rate(sized, key.signature, config.num_bits),
        "derived_p_value": derived_p_value(sized, key.signature, config.num_bits),
    }


def read_signature(key: WatermarkKey, outputs: NDArray[np.floating]) -> float:
    """Return how much of the signature the key's extractor reads."""
    config = key.configuration
    # Outputs or weights beyond float32 give infinity or NaN, which no bit is read from.
    with np.errstate(over="ignore", invalid="ignore"):
        mapped = mlp_forward(outputs, key.extractor)
    return extraction_rate(mapped, key.signature, config.num_bits, config.spread_factor)


def rescaled(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide by the power of two next to the largest entry, which is exact.

    Only the extractor cares for the size of outputs. A thief who returns them 1e200 times as
    large must not make squares overflow.
    """
    _, exponent = np.frexp(np.abs(outputs).max())
    return np.asarray(np.ldexp(outputs, -exponent))


def output_rank(outputs: NDArray[np.float64]) -> int:
    """Return in how many dimensions outputs vary."""
    return int(row_space_basis(centred(rescaled(outputs).T)).shape[1])
