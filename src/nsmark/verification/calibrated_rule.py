"""The rule ``calibrated``: every witness against its controls, with the keys that lie refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.calibration import Calibration
from nsmark.verification.control import Control
from nsmark.verification.decide import Decision, Verdict
from nsmark.verification.measure import Evidence, Statistics, marks_in, read_pairs
from nsmark.verification.questions import Questions
from nsmark.verification.witnesses import EXTRACTION, WITNESSES, Line

RULE_VERSION = 12
"""Counted up whenever the rule may judge the same answers otherwise than before: one of its lines
changes, or what is measured, compared or refused. Pages of results name the version they were
judged by; the list of versions in ``docs/results/README.md`` gets a line each time."""
# Exact under the hypothesis that a model was not trained with this signature. An owner may try
# 2⁴⁰ claims: a thousandth of what that leaves.
MAX_DERIVED_P_VALUE = 1e-15
# Exact under the same hypothesis; the contract's line.
MAX_PAIR_P_VALUE = 1e-12
# The same answers, read in another way: a thousandth of the chance that the line above leaves, and
# of what 2⁴⁰ tried claims leave.
MAX_WAGER_P_VALUE = 1e-15
PAIR_LINES = (
    ("pair_code_p_value", MAX_PAIR_P_VALUE),
    ("pair_wager_p_value", MAX_WAGER_P_VALUE),
)
"""Both ways of reading the pair code: the statistic, and what it is at most where it counts."""
_LEAST_OWN_EXTRACTION = 0.9
_LEAST_OWN_PAIRS = 0.8
_MOST_REPEATED = 0.1
# Of the standard deviation of every dimension. Trained on thousands of texts, an extractor reads
# through ten times as much.
_NOISE = 0.01
# With hardly more texts than dimensions, chance brings every model close.
_LEAST_TEXTS_PER_DIMENSION = 1.5


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


def unshown_marks(
    key: WatermarkKey, questions: Questions, answers: RecordedOutputs
) -> tuple[str, ...]:
    """Return what a key's own model does not show of its marks, in sentences; nothing if all.

    Args:
        key: The key, with the model's outputs.
        questions: The key's.
        answers: The same outputs, and those to the pair code's texts.
    """
    flaw = key_flaw(key, questions)
    found = [] if flaw is None else [flaw]
    if "pairs" in key.configuration.marks:
        read = read_pairs(key, questions, answers, [])
        if read is None or not _is_read(*read):
            rate = 0.0 if read is None else read[0].rate
            found.append(f"the model does not carry the pair code: {rate:.2f} of it is read")
    return tuple(found)


def _is_read(pairs: PairReading, wager: PairWager) -> bool:
    """Return whether a model carries a pair code: of a small one nothing else is ever shown."""
    statistics = Statistics(pair_code_p_value=pairs.p_value, pair_wager_p_value=wager.p_value)
    can_be_shown = 2 * 0.5 ** min(pairs.halves) <= MAX_PAIR_P_VALUE
    return pairs.rate >= _LEAST_OWN_PAIRS and (has_pair_code(statistics) or not can_be_shown)


def decide_calibrated(
    evidence: Evidence,
    calibration: Calibration | None,
    controls: Sequence[Control],
    flaw: str | None = None,
    owner_rank: int = 1,
    pair_doubt: str | None = None,
) -> Decision:
    """Accuse if a witness lies beyond its line, and nothing speaks against the key.

    Args:
        evidence: What was measured.
        calibration: Lines from the controls that are like the suspect; None if there are none.
        controls: Innocent models measured under the same key, all of them.
        flaw: What :func:`key_flaw` found.
        owner_rank: Dimensions in which the owner's outputs vary.
        pair_doubt: Why the pair code does not count (:mod:`nsmark.verification.pair_derivations`).
    """
    refusal = _refusal(evidence, calibration, controls, flaw)
    if refusal is not None:
        return Decision.refusal(refusal)
    passed = [line.name for line in _lines(calibration) if line.passed_by(evidence.counted)]
    if _derived(evidence.triggered):
        passed.append("derived_extraction_rate")
    if pair_doubt is None:
        passed = [*_pair_witnesses(evidence.triggered), *passed]
    if not has_enough_texts(evidence, owner_rank):
        passed = [name for name in passed if name in _READ]
    if calibration is None and not passed:
        if controls:
            reason = f"there are no controls whose outputs have the suspect's rank {evidence.rank}"
        else:
            reason = "not calibrated by the verifier"
        found = describe_pairs(evidence, pair_doubt)
        return Decision(Verdict.NOT_SHOWN, (reason, *found, *evidence.notes))
    reasons = [
        *describe_pairs(evidence, pair_doubt),
        *_describe_derived(evidence.triggered),
    ]
    if not has_enough_texts(evidence, owner_rank):
        reasons.append(
            f"{evidence.num_texts} texts are too few for outputs of rank {owner_rank}: only what "
            "is read from them counts"
        )
    if controls and not any(line.name == _ROW_SPACE for line in _lines(calibration)):
        reasons.append(
            f"there are no controls whose outputs have the suspect's rank {evidence.rank}: its "
            "row space is not compared"
        )
    for line in _lines(calibration):
        reasons += _describe(line, evidence.triggered, evidence.counted)
    verdict = Verdict.OWNED if passed else Verdict.NOT_SHOWN
    return Decision(verdict, (*reasons, *evidence.notes), tuple(passed))


def has_enough_texts(evidence: Evidence, owner_rank: int) -> bool:
    """Return whether chance leaves the null space a meaning."""
    return evidence.num_texts >= _LEAST_TEXTS_PER_DIMENSION * owner_rank


def _refusal(
    evidence: Evidence,
    calibration: Calibration | None,
    controls: Sequence[Control],
    flaw: str | None,
) -> str | None:
    """Return why the key is refused, whatever the suspect."""
    if flaw is not None:
        return flaw
    for control in controls:
        rate = control.triggered.extraction_rate
        if rate is not None and rate >= 0.5:
            return (
                f"its extractor reads the signature from the innocent model {control.name!r} "
                f"(rate {rate:.2f})"
            )
        if _derived(control.triggered):
            return f"the innocent model {control.name!r} carries its readout"
        if has_pair_code(control.triggered):
            return f"the innocent model {control.name!r} carries its pair code"
    line = None if calibration is None else calibration.line(EXTRACTION.name)
    rate = evidence.untriggered.extraction_rate
    if rate is not None and rate > (0.5 if line is None else min(line.threshold, 0.5)):
        return f"its extractor reads the signature from untriggered texts too (rate {rate:.2f})"
    if _derived(evidence.untriggered):
        return "its readout is there on untriggered texts, too"
    return None


# What is read from outputs, not compared with the owner's.
PAIR_CODE = "pair_code_rate"
_ROW_SPACE = "aligned_subspace_overlap"
PAIR_WAGER = "pair_wager_p_value"
PAIR_WITNESSES = frozenset({PAIR_CODE, PAIR_WAGER})
"""Either way of reading the pair code."""
_READ = (EXTRACTION.name, "derived_extraction_rate", *PAIR_WITNESSES)


def has_pair_code(statistics: Statistics) -> bool:
    """Return whether chance cannot have read so much of the pair code."""
    return bool(_pair_witnesses(statistics))


def _pair_witnesses(statistics: Statistics) -> list[str]:
    """Return which ways of reading the pair code show more than chance can."""
    return [
        witness
        for witness, (name, line) in zip((PAIR_CODE, PAIR_WAGER), PAIR_LINES, strict=True)
        if (value := getattr(statistics, name)) is not None and value <= line
    ]


def describe_pairs(evidence: Evidence, doubt: str | None) -> list[str]:
    """Say what was read of the pair code, and whether it counts; nothing where nothing was read."""
    reading = evidence.pairs
    if reading is None:
        return []
    compared = "at most" if reading.p_value <= MAX_PAIR_P_VALUE else "above"
    said = [
        f"pair code: {sum(reading.right)} of {sum(reading.halves)} held-out signs read, "
        f"p = {reading.p_value:.1e} for a model not trained with this signature, "
        f"{compared} {MAX_PAIR_P_VALUE:.0e}"
    ]
    wager = evidence.wager
    if wager is not None:
        compared = "at most" if wager.p_value <= MAX_WAGER_P_VALUE else "above"
        said.append(
            "pair code: betting on its signs one after the other made "
            f"10^{wager.decades} of 1, p = {wager.p_value:.0e} for such a model, "
            f"{compared} {MAX_WAGER_P_VALUE:.0e}"
        )
    return said if doubt is None else [*said, f"it does not count: {doubt}"]


def _lines(calibration: Calibration | None) -> tuple[Line, ...]:
    return () if calibration is None else calibration.lines


def _derived(statistics: Statistics) -> bool:
    value = statistics.derived_p_value
    return value is not None and value <= MAX_DERIVED_P_VALUE


def _describe_derived(statistics: Statistics) -> list[str]:
    rate, value = statistics.derived_extraction_rate, statistics.derived_p_value
    if rate is None or value is None:
        return []
    compared = "at most" if _derived(statistics) else "above"
    return [
        f"derived extraction {rate:.3f}: p = {value:.1e} for a model not trained with this "
        f"signature, {compared} {MAX_DERIVED_P_VALUE:.0e}"
    ]


_LABELS = {witness.name: witness.label for witness in WITNESSES}


def _describe(line: Line, statistics: Statistics, counted: Statistics) -> list[str]:
    value: float | None = getattr(statistics, line.name)
    label = _LABELS[line.name]
    if value is None:
        return []
    if not line.can_be_reached:
        return [f"{label} {value:.3f}: tells nothing, innocent models lie too close"]
    passed = "lies beyond" if line.passed_by(counted) else "does not lie beyond"
    if getattr(counted, line.name) != value:
        label = f"{label} {value:.3f}, at the size of the owner's outputs"
        value = getattr(counted, line.name)
    return [
        f"{label} {value:.3f} {passed} {line.threshold:.3f}; the closest of {line.num_controls} "
        f"innocent models has {line.closest_control:.3f}"
    ]
