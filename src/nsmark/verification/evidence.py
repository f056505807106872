"""Key + suspect → Evidence: numbers only, no opinion."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.core.null_space import (
    check_matrix,
    invariant_matching_degree,
    live_rows,
    null_space_basis,
)
from nsmark.core.pair_code import PairReading, read_pair_code
from nsmark.core.pair_wager import PairWager, wager_on_pairs
from nsmark.errors import EvidenceError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.base import BatchCallback, Suspect
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.questions import Questions, key_questions
from nsmark.verification.side_by_side import run_both
from nsmark.verification.statistics import (
    BasisFunction,
    Statistics,
    compare_outputs,
    marks_in,
    prepare_outputs,
    read_signature,
    rescaled,
)

_LEAST_OWN_EXTRACTION = 0.9
_MOST_REPEATED = 0.1
# Of the standard deviation of every dimension. Trained on thousands of texts, an extractor reads
# through ten times as much.
_NOISE = 0.01

# Outputs that differ between texts by less than this share of their size are constant: float32
# noise around one vector lies below it, any real model far above.
_CONSTANT_TOLERANCE = 1e-6


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


class OwnerReference:
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
        self.triggered, self.untriggered = run_both(
            lambda: prepare_outputs(self.questions.owner_triggered, basis_of),
            lambda: prepare_outputs(self.questions.owner_untriggered, basis_of),
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
        (triggered, rank), (untriggered, _) = run_both(
            lambda: compare_outputs(self.key, self.triggered, answers.triggered, notes[0]),
            lambda: compare_outputs(self.key, self.untriggered, answers.untriggered, notes[1]),
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
            dead_rows=output_dim - int(live_rows(rescaled(answers.triggered).T).sum()),
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
        directions = rescaled(outputs)
        lengths = np.linalg.norm(directions, axis=1)
        factors = np.divide(sizes, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return read_signature(self.key, directions * factors[:, np.newaxis])


def measure(
    key: WatermarkKey,
    suspect: Suspect | RecordedOutputs,
    on_batch: BatchCallback | None = None,
    basis_of: BasisFunction = null_space_basis,
) -> Evidence:
    """Measure one suspect; see :class:`OwnerReference` for many."""
    return OwnerReference(key, basis_of).measure(suspect, on_batch)


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
    outputs = rescaled(check_matrix(outputs, "outputs to pair texts"))
    size = pairs.config.size
    return (
        read_pair_code(outputs, asked.numbers, asked.signs, asked.seed),
        wager_on_pairs(outputs, asked.numbers, asked.signs, size, asked.seed),
    )


def _check_outputs(outputs: NDArray[np.float64], name: str, num_texts: int) -> None:
    if len(outputs) != num_texts:
        raise EvidenceError(
            f"there are {len(outputs)} {name} outputs, the key asks {num_texts} texts",
            "answer exactly the key's texts: see `nsmark inspect KEY --queries FILE`",
        )
    values = rescaled(check_matrix(outputs, f"{name} outputs"))
    scale = np.abs(values).max()
    if np.ptp(values, axis=0).max() <= _CONSTANT_TOLERANCE * scale:
        raise EvidenceError(
            f"every text gets the same {name} output", "the model ignores its input: check it"
        )


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
