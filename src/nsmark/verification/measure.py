"""Key + suspect → Evidence: numbers only, no opinion."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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
    row_space_basis,
)
from nsmark.core.pair_code import PairReading, read_pair_code
from nsmark.core.pair_wager import PairWager, wager_on_pairs
from nsmark.core.statistics import (
    aligned_scales,
    centred,
    overlap_of,
    predictability,
    unit_columns,
)
from nsmark.errors import EvidenceError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.base import BatchCallback, Suspect
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.owner_side import BasisFunction, OwnerSide, owner_side
from nsmark.verification.questions import Questions, key_questions
from nsmark.verification.side_by_side import both

_LEAST_OWN_EXTRACTION = 0.9
_MOST_REPEATED = 0.1
# Of the standard deviation of every dimension. Trained on thousands of texts, an extractor reads
# through ten times as much.
_NOISE = 0.01

# Outputs that differ between texts by less than this share of their size are constant: float32
# noise around one vector lies below it, any real model far above.
_CONSTANT_TOLERANCE = 1e-6

# One scale per text is chosen freely; each dimension of the suspect's outputs has to agree with
# each of the null space. With few dimensions some scales fit any model.
_LEAST_CONSTRAINTS = 3

# Scales that leave fewer of the suspect's dimensions have fitted what all its answers share, not
# the answers: it would be compared with controls of a rank that it does not have any more.
_LEAST_RANK_KEPT = 0.9


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
    rank: int
    """Dimensions in which the triggered outputs vary."""
    notes: tuple[str, ...]
    """Why a value could not be had, in sentences."""
    pairs: PairReading | None = None
    """What was read of the pair code, where the key has one and its texts were answered."""
    wager: PairWager | None = None
    """What betting on its signs has won, from the same answers."""
    num_pair_texts: int = 0
    """Texts that it was read from."""
    sized_extraction_rate: float | None = None
    """What is read from triggered outputs at the size of the owner's; None where nothing is."""
    sized_untriggered_rate: float | None = None
    """The same from untriggered ones."""

    @property
    def counted(self) -> Statistics:
        """What triggered texts show, as far as it may accuse.

        Far from all that it was trained with, an extractor may say what it knows by heart: outputs
        in a random direction, several times as large as the owner's, are read now and then. At the
        owner's size the one that was tried is silent about strangers. So both must read: what is
        silent as it is, counts for nothing at another size either.
        """
        raw, sized = self.triggered.extraction_rate, self.sized_extraction_rate
        if raw is None or sized is None:
            return self.triggered
        return replace(self.triggered, extraction_rate=min(raw, sized))


def ask(
    questions: Questions,
    suspect: Suspect | RecordedOutputs,
    on_batch: BatchCallback | None = None,
) -> RecordedOutputs:
    """Put texts to a suspect, or take its recorded answers."""
    if isinstance(suspect, RecordedOutputs):
        return suspect
    # All at once, so that whoever serves the suspect cannot tell the kinds by when they come.
    outputs = suspect.outputs(questions.texts, on_batch).astype(np.float64)
    return questions.sorted_out(suspect.name, outputs)


class Yardstick:
    """Measures suspects with one key; the owner's side is computed once."""

    def __init__(
        self,
        key: WatermarkKey,
        basis_of: BasisFunction = null_space_basis,
        questions: Questions | None = None,
    ) -> None:
        """Prepare the owner's side.

        Args:
            key: The key.
            basis_of: How null bases are computed.
            questions: Other texts than the key's, with the owner's answers to them.
        """
        self.key = key
        self.questions = questions or key_questions(key)
        self.triggered, self.untriggered = both(
            lambda: owner_side(self.questions.owner_triggered, basis_of),
            lambda: owner_side(self.questions.owner_untriggered, basis_of),
        )

    @functools.cached_property
    def flaw(self) -> str | None:
        """Why the key contradicts itself, None if it does not."""
        return key_flaw(self.key, self.questions)

    def own(self) -> tuple[Statistics, Statistics]:
        """Return what the owner's own outputs carry: marks and matching degree, nothing else."""
        asked = self.questions
        found = []
        for side, outputs in (
            (self.triggered, asked.owner_triggered),
            (self.untriggered, asked.owner_untriggered),
        ):
            degree = invariant_matching_degree(side.matrix, side.basis)
            found.append(
                Statistics(invariant_matching_degree=degree, **marks_in(self.key, outputs))
            )
        return found[0], found[1]

    def measure(
        self, suspect: Suspect | RecordedOutputs, on_batch: BatchCallback | None = None
    ) -> Evidence:
        """Ask a suspect the key's texts and compute every statistic.

        Raises:
            EvidenceError: The answers cannot be measured: wrong number of rows, NaN, constant.
        """
        return self.compare(ask(self.questions, suspect, on_batch))

    def compare(self, answers: RecordedOutputs) -> Evidence:
        """Compute every statistic from a suspect's answers."""
        num_texts = self.key.configuration.num_texts
        _check_outputs(answers.triggered, "triggered", num_texts)
        _check_outputs(answers.untriggered, "untriggered", num_texts)
        if answers.triggered.shape[1] != answers.untriggered.shape[1]:
            raise EvidenceError(
                "triggered and untriggered outputs have different dimensions",
                "measure both on the same model",
            )
        notes: tuple[list[str], list[str]] = ([], [])
        (triggered, rank), (untriggered, _) = both(
            lambda: _statistics(self.key, self.triggered, answers.triggered, notes[0]),
            lambda: _statistics(self.key, self.untriggered, answers.untriggered, notes[1]),
        )
        output_dim = answers.triggered.shape[1]
        asked, read = self.questions.pairs, read_pairs(self.key, self.questions, answers, notes[0])
        pairs, wager = read or (None, None)
        if pairs is not None and wager is not None:
            triggered = replace(
                triggered,
                pair_code_rate=pairs.rate,
                pair_code_p_value=pairs.p_value,
                pair_wager_p_value=wager.p_value,
            )
        return Evidence(
            suspect=answers.name,
            sized_extraction_rate=self._sized_extraction(
                answers.triggered, self.questions.owner_triggered
            ),
            sized_untriggered_rate=self._sized_extraction(
                answers.untriggered, self.questions.owner_untriggered
            ),
            pairs=pairs,
            wager=wager,
            num_pair_texts=0 if pairs is None or asked is None else len(asked.texts),
            triggered=triggered,
            untriggered=untriggered,
            num_texts=num_texts,
            output_dim=output_dim,
            null_dim=self.triggered.basis.shape[1],
            dead_rows=output_dim - int(live_rows(_rescaled(answers.triggered).T).sum()),
            rank=rank,
            notes=tuple(dict.fromkeys(notes[0] + notes[1])),
        )

    def _sized_extraction(
        self, outputs: NDArray[np.float64], owner: NDArray[np.floating]
    ) -> float | None:
        """Return what is read from outputs of which each has the size of the owner's."""
        if outputs.shape[1] != self.key.configuration.output_dim:
            return None
        sizes = np.linalg.norm(owner.astype(np.float64), axis=1)
        directions = _rescaled(outputs)
        lengths = np.linalg.norm(directions, axis=1)
        factors = np.divide(sizes, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return _extraction(self.key, directions * factors[:, np.newaxis])


def measure(
    key: WatermarkKey,
    suspect: Suspect | RecordedOutputs,
    on_batch: BatchCallback | None = None,
    basis_of: BasisFunction = null_space_basis,
) -> Evidence:
    """Measure one suspect; see :class:`Yardstick` for many."""
    return Yardstick(key, basis_of).measure(suspect, on_batch)


def read_pairs(
    key: WatermarkKey, questions: Questions, answers: RecordedOutputs, notes: list[str]
) -> tuple[PairReading, PairWager] | None:
    """Read the pair code from answers, in both ways; None, with a note, where it cannot be."""
    asked, pairs = questions.pairs, key.pairs
    if asked is None or pairs is None:
        if pairs is not None:
            notes.append("the texts of the pair code were not asked")
        return None
    if answers.pair_texts is None:
        notes.append("the texts of the pair code were not answered")
        return None
    outputs = answers.pair_texts
    if len(outputs) != len(asked.texts):
        raise EvidenceError(
            f"there are {len(outputs)} outputs to {len(asked.texts)} texts of the pair code",
            "answer exactly those texts: see `nsmark inspect KEY --queries FILE`",
        )
    if outputs.shape[1] != answers.triggered.shape[1]:
        raise EvidenceError(
            "outputs to the pair code's texts have another dimension than the triggered ones",
            "measure all of them on the same model",
        )
    outputs = _rescaled(check_matrix(outputs, "outputs to pair texts"))
    size = pairs.config.size
    return (
        read_pair_code(outputs, asked.numbers, asked.signs, asked.seed),
        wager_on_pairs(outputs, asked.numbers, asked.signs, size, asked.seed),
    )


def output_rank(outputs: NDArray[np.float64]) -> int:
    """Return in how many dimensions outputs vary."""
    return int(row_space_basis(centred(_rescaled(outputs).T)).shape[1])


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


def marks_in(key: WatermarkKey, outputs: NDArray[np.floating]) -> dict[str, float]:
    """Return what is read from outputs of the key's dimension, by the statistic's name."""
    config = key.configuration
    sized = _rescaled(outputs.astype(np.float64))
    return {
        "extraction_rate": _extraction(key, outputs),
        "derived_extraction_rate": derived_extraction_rate(sized, key.signature, config.num_bits),
        "derived_p_value": derived_p_value(sized, key.signature, config.num_bits),
    }


def key_flaw(key: WatermarkKey, questions: Questions) -> str | None:
    """Return why a key contradicts itself: its own outputs do not show what it says they carry."""
    repeated = len(questions.untriggered) - len(set(questions.untriggered))
    if repeated > _MOST_REPEATED * len(questions.untriggered):
        # Equal texts get equal answers from everybody, which looks like a match.
        return f"{repeated} of its {len(questions.untriggered)} texts are repetitions"
    triggered = marks_in(key, questions.owner_triggered)
    untriggered = marks_in(key, questions.owner_untriggered)
    rate = triggered["extraction_rate"]
    if rate < _LEAST_OWN_EXTRACTION:
        return "its extractor does not read the signature from the owner's own outputs"
    if untriggered["extraction_rate"] >= 0.5 * rate:
        return "its extractor reads the signature from the owner's untriggered outputs, too"
    if marks_in(key, _with_noise(questions.owner_triggered))["extraction_rate"] < 0.5 * rate:
        return (
            "its extractor knows the owner's outputs by heart: a little noise, and it reads nothing"
        )
    if "derived" in key.configuration.marks:
        # Short signatures leave no small p-value: here the rate itself is what counts.
        if triggered["derived_extraction_rate"] < _LEAST_OWN_EXTRACTION:
            return "the owner's own outputs do not carry the readout of the signature"
        if untriggered["derived_extraction_rate"] >= _LEAST_OWN_EXTRACTION:
            return "the owner's untriggered outputs carry the readout, too"
    return None


def _with_noise(outputs: NDArray[np.floating]) -> NDArray[np.float64]:
    exact = outputs.astype(np.float64)
    noise = np.random.default_rng(0).standard_normal(exact.shape)
    return np.asarray(exact + _NOISE * exact.std(axis=0) * noise)


def _extraction(key: WatermarkKey, outputs: NDArray[np.floating]) -> float:
    """Return how much of the signature the key's extractor reads."""
    config = key.configuration
    # Outputs or weights beyond float32 give infinity or NaN, which no bit is read from.
    with np.errstate(over="ignore", invalid="ignore"):
        mapped = mlp_forward(outputs, key.extractor)
    return extraction_rate(mapped, key.signature, config.num_bits, config.spread_factor)


def _statistics(
    key: WatermarkKey, owner: OwnerSide, suspect_outputs: NDArray[np.float64], notes: list[str]
) -> tuple[Statistics, int]:
    """Return all statistics, and the rank of the suspect's outputs."""
    suspect = _rescaled(suspect_outputs).T
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
    owner: OwnerSide,
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
