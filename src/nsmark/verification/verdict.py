"""Evidence + controls → verdict with its reasons: the one place where it is decided.

:func:`judge` has the steps. What it is given alone counts: same input, same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.keyfile.document import Thresholds
from nsmark.keyfile.schema import WatermarkKey
from nsmark.verification.controls import CHANGED, Control, Controls
from nsmark.verification.evidence import Evidence, OwnerReference
from nsmark.verification.statistics import EXTRACTION, STATISTICS, Statistics
from nsmark.verification.thresholds import (
    DEFAULT_RATE,
    Calibration,
    Threshold,
    calibrate,
    paper_thresholds,
)

RULES = ("calibrated", "paper")

RULE_VERSION = 12
"""Counted up whenever the rule may judge the same answers otherwise than before: one of its
thresholds changes, or what is measured, compared or refused. Pages of results name the version they
were judged by; the list of versions in ``docs/results/README.md`` gets a line each time."""
# Exact under the hypothesis that a model was not trained with this signature. An owner may try
# 2⁴⁰ claims: a thousandth of what that leaves.
MAX_DERIVED_P_VALUE = 1e-15
# Exact under the same hypothesis; as the contract has it.
MAX_PAIR_P_VALUE = 1e-12
# The same answers, read in another way: a thousandth of the chance that the bound above leaves, and
# of what 2⁴⁰ tried claims leave.
MAX_WAGER_P_VALUE = 1e-15
PAIR_LINES = (
    ("pair_code_p_value", MAX_PAIR_P_VALUE),
    ("pair_wager_p_value", MAX_WAGER_P_VALUE),
)
"""Both ways of reading the pair code: the statistic, and what it is at most where it counts."""
_LEAST_OWN_PAIRS = 0.8
# With hardly more texts than dimensions, chance brings every model close.
_LEAST_TEXTS_PER_DIMENSION = 1.5
# What is read from outputs, not compared with the owner's.
PAIR_CODE = "pair_code_rate"
_ROW_SPACE = "aligned_subspace_overlap"
PAIR_WAGER = "pair_wager_p_value"
PAIR_STATISTICS = frozenset({PAIR_CODE, PAIR_WAGER})
"""Either way of reading the pair code."""
_READ = (EXTRACTION.name, "derived_extraction_rate", *PAIR_STATISTICS)


class Verdict(StrEnum):
    """The three possible outcomes."""

    OWNED = "owned"
    NOT_SHOWN = "not_shown"
    COULD_NOT_MEASURE = "could_not_measure"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why."""

    verdict: Verdict
    reasons: tuple[str, ...]
    passed: tuple[str, ...] = ()
    """The statistics that accuse."""
    refuses_key: bool = False
    """Whether something speaks against the key itself, whatever the suspect."""

    @classmethod
    def refusal(cls, reason: str) -> Decision:
        """Return the decision about a key that proves nothing."""
        return cls(Verdict.NOT_SHOWN, (f"the key is refused: {reason}",), refuses_key=True)


@dataclass(frozen=True, slots=True)
class VerdictDetails:
    """A decision with the thresholds and controls behind it."""

    decision: Decision
    thresholds: Thresholds | None = None
    calibration: Calibration | None = None
    controls: Sequence[Control] = ()


def judge(
    owner: OwnerReference,
    evidence: Evidence,
    controls: Controls,
    *,
    rule: str = "calibrated",
    rate: float = DEFAULT_RATE,
    pair_doubt: str | None = None,
) -> VerdictDetails:
    """Reach a verdict on what was measured.

    1. Without controls nothing is shown, unless by a pair code, which needs none.
    2. Thresholds are drawn from those controls that the suspect may be compared with.
    3. A key that contradicts itself is refused.
    4. A key that accepts an innocent model is refused.
    5. A key whose marks are read from untriggered texts, too, is refused.
    6. Every statistic beyond its threshold accuses; so do marks that chance cannot explain.
    7. A pair code that something speaks against does not count, and of too few texts only what is
       read from them does.
    8. The model is owned if anything accuses.

    The rule ``paper`` has two thresholds and no steps 3 and 7.

    Args:
        owner: The owner's side.
        evidence: The suspect's.
        controls: Innocent models, measured.
        rule: One of :data:`RULES`.
        rate: False accusations that the rule ``calibrated`` allows.
        pair_doubt: Why the key's pair code does not count
            (:mod:`nsmark.verification.derivations`).
    """
    # 1.
    by_itself = rule == "calibrated" and has_pair_code(evidence.triggered) and pair_doubt is None
    if not controls.measured and not by_itself:
        reason = (
            "not calibrated by the verifier"
            if controls.by == "verifier"
            else "the key holds no controls: give your own with --controls"
        )
        found = describe_pairs(evidence, pair_doubt) if rule == "calibrated" else []
        return VerdictDetails(Decision(Verdict.NOT_SHOWN, (reason, *found)))
    # 2.
    if rule == "paper":
        own, _ = owner.own()
        # Never the numbers written in the key: they follow from its outputs and its controls, and
        # a key that says otherwise was made to accuse.
        plain = [control for control in controls.measured if CHANGED not in control.name]
        thresholds = paper_thresholds(own, [control.triggered for control in plain])
        return VerdictDetails(decide_by_paper(evidence, thresholds, plain), thresholds, None, plain)
    beside = controls.beside(owner, evidence)
    num_bits = owner.key.configuration.num_bits
    calibration = calibrate(beside, rate, suspect=evidence.untriggered, num_bits=num_bits)
    decision = decide_calibrated(
        evidence,
        calibration,
        controls.measured,
        owner.flaw,
        owner.triggered.rank,
        pair_doubt,
    )
    return VerdictDetails(decision, None, calibration, beside)


def is_identified(reading: PairReading, num_keys: int, pair_doubt: str | None) -> bool:
    """Return whether one of many keys' pair codes is found: each of them had its chance."""
    return min(1.0, reading.p_value * num_keys) <= MAX_PAIR_P_VALUE and pair_doubt is None


def _extraction_passes(statistics: Statistics, thresholds: Thresholds) -> bool:
    rate = statistics.extraction_rate
    return rate is not None and rate > thresholds.min_extraction_rate


def _matching_passes(statistics: Statistics, thresholds: Thresholds) -> bool:
    degree = statistics.invariant_matching_degree
    return degree is not None and degree < thresholds.max_matching_degree


def _is_accepted(triggered: Statistics, thresholds: Thresholds) -> bool:
    return _extraction_passes(triggered, thresholds) or _matching_passes(triggered, thresholds)


def decide_by_paper(
    evidence: Evidence, thresholds: Thresholds, controls: Sequence[Control] = ()
) -> Decision:
    """Apply the paper's rule: extraction first; if it fails, the null space.

    Two things are always required besides: the extraction must fail on untriggered texts, and
    the key must not accept a control.

    Args:
        evidence: What was measured.
        thresholds: The two.
        controls: Innocent models measured under the same key.
    """
    # 4.
    accepted = [c.name for c in controls if _is_accepted(c.triggered, thresholds)]
    if accepted:
        return Decision.refusal(f"it also accepts the innocent model {accepted[0]!r}")
    # 5.
    if _extraction_passes(evidence.untriggered, thresholds):
        return Decision.refusal(
            "its extractor reads the signature from untriggered texts too "
            f"(rate {evidence.untriggered.extraction_rate:.2f})"
        )
    # 6.
    passed = []
    if _extraction_passes(evidence.triggered, thresholds):
        passed.append("extraction_rate")
    if _matching_passes(evidence.triggered, thresholds):
        passed.append("invariant_matching_degree")
    # 8.
    verdict = Verdict.OWNED if passed else Verdict.NOT_SHOWN
    return Decision(verdict, _describe_by_paper(evidence, thresholds), tuple(passed))


def _describe_by_paper(evidence: Evidence, thresholds: Thresholds) -> tuple[str, ...]:
    rate = evidence.triggered.extraction_rate
    degree = evidence.triggered.invariant_matching_degree
    reasons = []
    if rate is None:
        reasons.append("the signature could not be extracted: the output dimensions differ")
    else:
        passed = _extraction_passes(evidence.triggered, thresholds)
        reasons.append(
            f"extraction rate {rate:.3f} on triggered texts "
            f"{'exceeds' if passed else 'does not exceed'} {thresholds.min_extraction_rate:.3f}"
        )
    if degree is None:
        reasons.append("the matching degree could not be had")
    else:
        passed = _matching_passes(evidence.triggered, thresholds)
        reasons.append(
            f"matching degree {degree:.2f} {'lies below' if passed else 'does not lie below'} "
            f"{thresholds.max_matching_degree:.2f} (lower is closer)"
        )
    return (*reasons, *evidence.notes)


def decide_calibrated(
    evidence: Evidence,
    calibration: Calibration | None,
    controls: Sequence[Control],
    flaw: str | None = None,
    owner_rank: int = 1,
    pair_doubt: str | None = None,
) -> Decision:
    """Accuse if a statistic lies beyond its threshold, and nothing speaks against the key.

    Args:
        evidence: What was measured.
        calibration: Thresholds from the controls that are like the suspect; None if there are none.
        controls: Innocent models measured under the same key, all of them.
        flaw: Why the key contradicts itself (:func:`key_flaw`).
        owner_rank: Dimensions in which the owner's outputs vary.
        pair_doubt: Why the pair code does not count (:mod:`nsmark.verification.derivations`).
    """
    # 3., 4., 5.
    refusal = (
        flaw or refusal_by_controls(controls) or _refusal_by_untriggered(evidence, calibration)
    )
    if refusal is not None:
        return Decision.refusal(refusal)
    # 6.
    passed = [each.name for each in _thresholds(calibration) if each.passed_by(evidence.counted)]
    if _derived(evidence.triggered):
        passed.append("derived_extraction_rate")
    # 7.
    if pair_doubt is None:
        passed = [*_pair_statistics(evidence.triggered), *passed]
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
    if controls and not any(each.name == _ROW_SPACE for each in _thresholds(calibration)):
        reasons.append(
            f"there are no controls whose outputs have the suspect's rank {evidence.rank}: its "
            "row space is not compared"
        )
    for each in _thresholds(calibration):
        reasons += _describe(each, evidence.triggered, evidence.counted)
    # 8.
    verdict = Verdict.OWNED if passed else Verdict.NOT_SHOWN
    return Decision(verdict, (*reasons, *evidence.notes), tuple(passed))


def has_enough_texts(evidence: Evidence, owner_rank: int) -> bool:
    """Return whether chance leaves the null space a meaning."""
    return evidence.num_texts >= _LEAST_TEXTS_PER_DIMENSION * owner_rank


def refusal_by_controls(controls: Sequence[Control]) -> str | None:
    """Return why a key that accepts an innocent model is refused, whatever the suspect."""
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
    return None


def _refusal_by_untriggered(evidence: Evidence, calibration: Calibration | None) -> str | None:
    """Return why a key that is read from untriggered texts is refused."""
    threshold = None if calibration is None else calibration.threshold(EXTRACTION.name)
    rate = evidence.untriggered.extraction_rate
    if rate is not None and rate > (0.5 if threshold is None else min(threshold.value, 0.5)):
        return f"its extractor reads the signature from untriggered texts too (rate {rate:.2f})"
    if _derived(evidence.untriggered):
        return "its readout is there on untriggered texts, too"
    return None


def has_pair_code(statistics: Statistics) -> bool:
    """Return whether chance cannot have read so much of the pair code."""
    return bool(_pair_statistics(statistics))


def _pair_statistics(statistics: Statistics) -> list[str]:
    """Return which ways of reading the pair code show more than chance can."""
    return [
        statistic
        for statistic, (name, most) in zip((PAIR_CODE, PAIR_WAGER), PAIR_LINES, strict=True)
        if (value := getattr(statistics, name)) is not None and value <= most
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


def _thresholds(calibration: Calibration | None) -> tuple[Threshold, ...]:
    return () if calibration is None else calibration.thresholds


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


_LABELS = {statistic.name: statistic.label for statistic in STATISTICS}


def _describe(threshold: Threshold, statistics: Statistics, counted: Statistics) -> list[str]:
    value: float | None = getattr(statistics, threshold.name)
    label = _LABELS[threshold.name]
    if value is None:
        return []
    if not threshold.can_be_reached:
        return [f"{label} {value:.3f}: tells nothing, innocent models lie too close"]
    passed = "lies beyond" if threshold.passed_by(counted) else "does not lie beyond"
    if getattr(counted, threshold.name) != value:
        label = f"{label} {value:.3f}, at the size of the owner's outputs"
        value = getattr(counted, threshold.name)
    return [
        f"{label} {value:.3f} {passed} {threshold.value:.3f}; the closest of "
        f"{threshold.num_controls} innocent models has {threshold.closest_control:.3f}"
    ]


def unshown_marks(
    key: WatermarkKey, flaw: str | None, read: tuple[PairReading, PairWager] | None
) -> tuple[str, ...]:
    """Return what a key's own model does not show of its marks, in sentences; nothing if all.

    Args:
        key: The key, with the model's outputs.
        flaw: Why it contradicts itself (:func:`key_flaw`).
        read: What was read of its pair code from the model; None where nothing was.
    """
    found = [] if flaw is None else [flaw]
    if "pairs" in key.configuration.marks and (read is None or not _is_read(*read)):
        rate = 0.0 if read is None else read[0].rate
        found.append(f"the model does not carry the pair code: {rate:.2f} of it is read")
    return tuple(found)


def _is_read(pairs: PairReading, wager: PairWager) -> bool:
    """Return whether a model carries a pair code: of a small one nothing else is ever shown."""
    statistics = Statistics(pair_code_p_value=pairs.p_value, pair_wager_p_value=wager.p_value)
    can_be_shown = 2 * 0.5 ** min(pairs.halves) <= MAX_PAIR_P_VALUE
    return pairs.rate >= _LEAST_OWN_PAIRS and (has_pair_code(statistics) or not can_be_shown)
