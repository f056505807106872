"""Controls → thresholds: from where on a statistic accuses, and how often that would be wrong.

A threshold is drawn for every statistic from what innocent models measured under the same key.
Closeness is −log of what is left unexplained: on that scale innocent models scatter evenly.

The baseline similarity counts: how like the owner's model a suspect is anyway, on untriggered
texts. A model made from the unmarked one is as close as a thief on ordinary texts, and far on
triggered ones; a model read at another layer is a little closer on triggered texts, and far on
ordinary ones. So a suspect is compared with controls of a baseline similarity like its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nsmark.errors import ConfigError, EvidenceError
from nsmark.keyfile.document import Thresholds
from nsmark.verification.controls import Control
from nsmark.verification.statistics import EXTRACTION, STATISTICS, Statistic, Statistics

DEFAULT_RATE = 1e-3
CONFIDENCE = 0.95
PAPER_SHARE_OF_GAP = 0.6
# So many controls, nearest to the suspect in baseline similarity, make a threshold.
NEIGHBOURS = 12
# Fewer models do not tell how innocent models scatter: then a margin stands in for it.
MIN_MODELS_TO_FIT = 10
# What is unexplained must be a third of what is in the closest control, if there are few: with the
# unmarked model alone, half would let one read at an earlier layer come within a hair of the
# threshold.
# In any case a tenth less, to say the same of every statistic.
_WIDE_MARGIN, _MARGIN = float(np.log(3)), float(-np.log(0.9))
_LEAST_BASELINE = 0.02
_BY_NAME = {witness.name: witness for witness in STATISTICS}
# Baseline similarities that are drawn: from, to, and how many.
_LEAST, _MOST, _NUM_PLACES = 0.02, 21.0, 160
ThresholdsByBaseline = dict[str, list[tuple[float, float]]]
"""By statistic: its value on untriggered texts, and the threshold on triggered ones."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where one statistic begins to accuse."""

    name: str
    value: float
    """In terms of the statistic itself."""
    closest_control: float
    num_controls: int

    @property
    def can_be_reached(self) -> bool:
        """Whether the owner's own model lies beyond it."""
        statistic = _BY_NAME[self.name]
        return statistic.closeness(self.value) < statistic.closeness(1.0)

    def passed_by(self, statistics: Statistics) -> bool:
        """Return whether a model with these statistics lies beyond it."""
        margin = self.margin(statistics)
        return margin is not None and margin > 0

    def margin(self, statistics: Statistics) -> float | None:
        """Return how much closer than that a model is; None if it was not measured."""
        statistic = _BY_NAME[self.name]
        closeness = statistic.of(statistics)
        return None if closeness is None else closeness - statistic.closeness(self.value)


@dataclass(frozen=True, slots=True)
class Calibration:
    """All thresholds, and how often an innocent model would be accused."""

    thresholds: tuple[Threshold, ...]
    num_models: int
    """Different innocent models behind the thresholds."""
    num_measurements: int
    """The same, counting changes of their outputs."""
    rate: float | None
    """The stated rate of false accusations, all statistics together; None with few models."""
    confidence: float
    accused: int
    """Control models that thresholds drawn from all others would accuse."""
    bound: float
    """Upper confidence bound of the rate of false accusations, from that count."""
    num_bits: int = 256
    """Of the signature that the extractor reads."""

    def threshold(self, name: str) -> Threshold | None:
        """Return that of a statistic."""
        return next((each for each in self.thresholds if each.name == name), None)

    def margin(self, statistics: Statistics) -> float | None:
        """Return how far the statistic that is farthest beyond its threshold lies beyond it.

        In closeness, of which one more means that a third as much is left unexplained; below 0 none
        is passed; None where nothing was measured.
        """
        margins = [
            margin for each in self.thresholds if (margin := each.margin(statistics)) is not None
        ]
        return max(margins, default=None)

    def to_mapping(self) -> dict[str, float | int | None]:
        """Return thresholds by statistic, and what is known about errors."""
        return {each.name: each.value for each in self.thresholds} | {
            "num_control_models": self.num_models,
            "num_control_measurements": self.num_measurements,
            "false_accusation_rate": self.rate,
            "confidence": self.confidence,
            "control_models_accused": self.accused,
            "false_accusation_bound": self.bound,
        }


def calibrate(
    controls: Sequence[Control],
    rate: float = DEFAULT_RATE,
    confidence: float = CONFIDENCE,
    *,
    suspect: Statistics | None = None,
    num_bits: int = 256,
) -> Calibration | None:
    """Draw a threshold for every statistic that controls have measured; None without any control.

    Of one model the closest measurement counts, whatever was done to its outputs: so models, not
    measurements, are what is drawn at random. With ten models or more it is a one-sided normal
    tolerance bound: with the stated confidence, all statistics together, at most a share ``rate``
    of innocent models of such a baseline lies beyond, if their closeness scatters normally. It
    always lies beyond the closest of all controls. With fewer models, what is unexplained must be
    at most a third of what is in the closest one, and no rate is stated.

    Args:
        controls: Innocent models that the suspect may be compared with (:meth:`Controls.beside`).
        rate: False accusations allowed.
        confidence: With which it holds.
        suspect: What the suspect measures on untriggered texts; without it all controls count.
        num_bits: Of the signature: few are read by chance.
    """
    if not 0 < rate < 0.5:
        raise ConfigError("rate", rate, "must lie between 0 and 0.5")
    if not controls:
        return None
    models = _by_model(controls)
    drawing = _Drawing(rate, confidence, num_bits)
    accused = sum(_accused(model, models, drawing) for model in models)
    count = len(models)
    return Calibration(
        thresholds=drawing.thresholds(list(models.values()), suspect),
        num_models=count,
        num_measurements=len(controls),
        rate=rate if count >= MIN_MODELS_TO_FIT else None,
        confidence=confidence,
        num_bits=num_bits,
        accused=accused,
        bound=float(stats.beta.ppf(confidence, accused + 1, count - accused))
        if accused < count
        else 1.0,
    )


def thresholds_for(
    calibration: Calibration, controls: Sequence[Control], suspect: Statistics
) -> tuple[Threshold, ...]:
    """Return the thresholds for another suspect, without judging the controls by each other.

    Args:
        calibration: Its rate, confidence and number of bits are kept.
        controls: Those that it was made from.
        suspect: What the other suspect measures on untriggered texts.
    """
    drawing = _Drawing(
        calibration.rate or DEFAULT_RATE, calibration.confidence, calibration.num_bits
    )
    return drawing.thresholds(list(_by_model(controls).values()), suspect)


def _by_model(controls: Sequence[Control]) -> dict[str, list[Control]]:
    models: dict[str, list[Control]] = {}
    for control in controls:
        models.setdefault(control.model, []).append(control)
    return models


def _accused(model: str, models: dict[str, list[Control]], drawing: _Drawing) -> bool:
    """Return whether a model would be accused if it were no control."""
    others = [controls for name, controls in models.items() if name != model]
    return bool(others) and any(
        each.passed_by(control.triggered)
        for control in models[model]
        for each in drawing.thresholds(others, control.untriggered)
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What thresholds are drawn for."""

    rate: float
    confidence: float
    num_bits: int

    def thresholds(
        self, models: Sequence[Sequence[Control]], suspect: Statistics | None
    ) -> tuple[Threshold, ...]:
        drawn = []
        for statistic in STATISTICS:
            found = [_closest(statistic, controls) for controls in models]
            measured = [pair for pair in found if pair is not None]
            if not measured:
                continue
            closeness = np.array([pair[0] for pair in measured])
            baseline = None if suspect is None else statistic.of(suspect)
            known = [pair[1] for pair in measured if pair[1] is not None]
            if (
                baseline is None
                or statistic is EXTRACTION
                or len(known) < len(measured)
                or len(measured) <= NEIGHBOURS
            ):
                like = closeness
            else:
                distances = [abs(_order(each) - _order(baseline)) for each in known]
                like = closeness[np.argsort(distances, kind="stable")[:NEIGHBOURS]]
            nearest = float(closeness.max())
            lowest = self._closeness(statistic, nearest, like)
            drawn.append(
                Threshold(
                    statistic.name, statistic.value(lowest), statistic.value(nearest), len(measured)
                )
            )
        return tuple(drawn)

    def _closeness(self, statistic: Statistic, closest: float, like: NDArray[np.float64]) -> float:
        """Return the closeness from which on a statistic accuses."""
        is_fitted = len(like) >= MIN_MODELS_TO_FIT
        # Shared among the statistics: the errors, and the doubt whether they are that few.
        rate, doubt = self.rate / len(STATISTICS), (1 - self.confidence) / len(STATISTICS)
        if statistic is EXTRACTION:
            chance = extraction_by_chance(self.num_bits, rate)
            lowest = max(chance, closest if is_fitted else (1 + closest) / 2)
        else:
            lowest = closest + (_MARGIN if is_fitted else _WIDE_MARGIN)
        if not is_fitted:
            return lowest
        factor = tolerance_factor(len(like), rate, 1 - doubt)
        return max(lowest, float(like.mean() + factor * like.std(ddof=1)))


def extraction_by_chance(num_bits: int, rate: float) -> float:
    """Return the extraction rate that guessing exceeds with a probability of at most ``rate``.

    A model that answers nearly the same to every text makes the extractor guess once, not once per
    text: however silent the controls are, that must not accuse.
    """
    return float(stats.binom.isf(rate, num_bits, 0.5)) / num_bits


def _closest(
    statistic: Statistic, controls: Sequence[Control]
) -> tuple[float, float | None] | None:
    """Return a model's closeness on triggered texts, and its baseline on untriggered ones."""
    found = [
        (closeness, statistic.of(control.untriggered))
        for control in controls
        if (closeness := statistic.of(control.triggered)) is not None
    ]
    return max(found, key=lambda pair: (pair[0], pair[1] or 0.0)) if found else None


def _order(baseline: float) -> float:
    """Return a scale on which the same step means as much among strangers as among kin."""
    return float(np.log(max(baseline, _LEAST_BASELINE)))


@functools.lru_cache(maxsize=1024)
def tolerance_factor(count: int, rate: float, confidence: float) -> float:
    """Return k such that mean + k · deviation of a normal sample bounds all but a share of it.

    One-sided, with the given confidence: from the noncentral t distribution.
    """
    shift = float(stats.norm.isf(rate)) * np.sqrt(count)
    return float(stats.nct.ppf(confidence, count - 1, shift) / np.sqrt(count))


def thresholds_by_baseline(
    controls: Sequence[Control], calibration: Calibration
) -> ThresholdsByBaseline:
    """Draw thresholds for suspects of any baseline similarity: strangers, kin, the owner's model.

    Args:
        controls: Those that the calibration was made from.
        calibration: Its rate and confidence are kept.
    """
    # With so few models all of them make the threshold, whatever the baseline.
    few = calibration.num_models <= NEIGHBOURS
    places = np.geomspace(_LEAST, _MOST, 2 if few else _NUM_PLACES)
    statistics = [statistic for statistic in STATISTICS if statistic is not EXTRACTION]
    found: ThresholdsByBaseline = {statistic.name: [] for statistic in statistics}
    for place in places:
        kin = {statistic.name: statistic.value(float(place)) for statistic in statistics}
        # A control may have measured anything: what gives no threshold is left out.
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = thresholds_for(calibration, controls, Statistics(**kin))
        for each in drawn:
            if each.name in kin and np.isfinite(each.value):
                found[each.name].append((kin[each.name], each.value))
    return {name: drawn for name, drawn in found.items() if drawn}


def paper_thresholds(owner: Statistics, controls: Sequence[Statistics]) -> Thresholds:
    """Return the paper's two: 0.6 of the gap between the owner's model and the mean control.

    Args:
        owner: The watermarked model under its own key.
        controls: Innocent models under the same key, at least one.
    """
    rates = [c.extraction_rate for c in controls if c.extraction_rate is not None]
    degrees = [
        c.invariant_matching_degree for c in controls if c.invariant_matching_degree is not None
    ]
    if (
        not rates
        or not degrees
        or owner.extraction_rate is None
        or owner.invariant_matching_degree is None
    ):
        raise EvidenceError(
            "no control gives both an extraction rate and a matching degree",
            "use at least one control of the key's output dimension",
        )
    return Thresholds(
        min_extraction_rate=PAPER_SHARE_OF_GAP * (owner.extraction_rate - float(np.mean(rates))),
        max_matching_degree=PAPER_SHARE_OF_GAP
        * (float(np.mean(degrees)) - owner.invariant_matching_degree),
    )
