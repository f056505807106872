"""Controls → lines: from where on a statistic accuses, and how often that would be wrong.

A line is drawn for every witness from what innocent models measured under the same key. Closeness
is −log of what is left unexplained: on that scale innocent models scatter evenly.

Kinship counts. A model made from the unmarked one is as close as a thief on ordinary texts, and far
on triggered ones; a model read at another layer is a little closer on triggered texts, and far on
ordinary ones. So a suspect is compared with the controls that resemble the owner's model as much as
it does on untriggered texts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nsmark.errors import ConfigError
from nsmark.verification.controls import Control
from nsmark.verification.measure import Statistics
from nsmark.verification.witnesses import EXTRACTION, WITNESSES, Line, Witness

DEFAULT_RATE = 1e-3
CONFIDENCE = 0.95
# So many controls, the suspect's nearest in kinship, make a line.
NEIGHBOURS = 12
# Fewer models do not tell how innocent models scatter: then a margin stands in for it.
MIN_MODELS_TO_FIT = 10
# What is unexplained must be a third of what is in the closest control, if there are few: with the
# unmarked model alone, half would let one read at an earlier layer come within a hair of the line.
# In any case a tenth less, to say the same of every witness.
_WIDE_MARGIN, _MARGIN = float(np.log(3)), float(-np.log(0.9))
_LEAST_KINSHIP = 0.02


@dataclass(frozen=True, slots=True)
class Calibration:
    """All lines, and how often an innocent model would be accused."""

    lines: tuple[Line, ...]
    num_models: int
    """Different innocent models behind the lines."""
    num_measurements: int
    """The same, counting changes of their outputs."""
    rate: float | None
    """The stated rate of false accusations, all witnesses together; None with few models."""
    confidence: float
    accused: int
    """Control models that the lines drawn from all others would accuse."""
    bound: float
    """Upper confidence bound of the rate of false accusations, from that count."""
    num_bits: int = 256
    """Of the signature that the extractor reads."""

    def line(self, name: str) -> Line | None:
        """Return the line of a witness."""
        return next((line for line in self.lines if line.name == name), None)

    def margin(self, statistics: Statistics) -> float | None:
        """Return how far beyond its line the witness lies that is farthest beyond; None without.

        In closeness, of which one more means that a third as much is left unexplained; below 0 no
        line is passed.
        """
        margins = [margin for line in self.lines if (margin := line.margin(statistics)) is not None]
        return max(margins, default=None)

    def to_mapping(self) -> dict[str, float | int | None]:
        """Return lines by statistic, and what is known about errors."""
        return {line.name: line.threshold for line in self.lines} | {
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
    """Draw a line for every witness that controls have measured; None without any control.

    Of one model the closest measurement counts, whatever was done to its outputs: so models, not
    measurements, are what is drawn at random. With ten models or more a line is a one-sided normal
    tolerance bound: with the stated confidence, all witnesses together, at most a share ``rate`` of
    innocent models of such a kinship lies beyond, if their closeness scatters normally. It always
    lies beyond the closest of all controls. With fewer models, what is unexplained must be at most
    a third of what is in the closest one, and no rate is stated.

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
        lines=drawing.lines(list(models.values()), suspect),
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


def lines_for(
    calibration: Calibration, controls: Sequence[Control], suspect: Statistics
) -> tuple[Line, ...]:
    """Return the lines for another suspect, without judging the controls by each other.

    Args:
        calibration: Its rate, confidence and number of bits are kept.
        controls: Those that it was made from.
        suspect: What the other suspect measures on untriggered texts.
    """
    drawing = _Drawing(
        calibration.rate or DEFAULT_RATE, calibration.confidence, calibration.num_bits
    )
    return drawing.lines(list(_by_model(controls).values()), suspect)


def _by_model(controls: Sequence[Control]) -> dict[str, list[Control]]:
    models: dict[str, list[Control]] = {}
    for control in controls:
        models.setdefault(control.model, []).append(control)
    return models


def _accused(model: str, models: dict[str, list[Control]], drawing: _Drawing) -> bool:
    """Return whether a model would be accused if it were no control."""
    others = [controls for name, controls in models.items() if name != model]
    return bool(others) and any(
        line.passed_by(control.triggered)
        for control in models[model]
        for line in drawing.lines(others, control.untriggered)
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What lines are drawn for."""

    rate: float
    confidence: float
    num_bits: int

    def lines(
        self, models: Sequence[Sequence[Control]], suspect: Statistics | None
    ) -> tuple[Line, ...]:
        lines = []
        for witness in WITNESSES:
            found = [_closest(witness, controls) for controls in models]
            measured = [pair for pair in found if pair is not None]
            if not measured:
                continue
            closeness = np.array([pair[0] for pair in measured])
            kinship = None if suspect is None else witness.of(suspect)
            known = [pair[1] for pair in measured if pair[1] is not None]
            if (
                kinship is None
                or witness is EXTRACTION
                or len(known) < len(measured)
                or len(measured) <= NEIGHBOURS
            ):
                like = closeness
            else:
                distances = [abs(_order(each) - _order(kinship)) for each in known]
                like = closeness[np.argsort(distances, kind="stable")[:NEIGHBOURS]]
            line = self._line(witness, float(closeness.max()), like)
            closest = witness.value(float(closeness.max()))
            lines.append(Line(witness.name, witness.value(line), closest, len(measured)))
        return tuple(lines)

    def _line(self, witness: Witness, closest: float, like: NDArray[np.float64]) -> float:
        """Return the closeness from which on a witness accuses."""
        is_fitted = len(like) >= MIN_MODELS_TO_FIT
        # Shared among the witnesses: the errors, and the doubt whether they are that few.
        rate, doubt = self.rate / len(WITNESSES), (1 - self.confidence) / len(WITNESSES)
        if witness is EXTRACTION:
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


def _closest(witness: Witness, controls: Sequence[Control]) -> tuple[float, float | None] | None:
    """Return a model's closeness on triggered texts, and its kinship on untriggered ones."""
    found = [
        (closeness, witness.of(control.untriggered))
        for control in controls
        if (closeness := witness.of(control.triggered)) is not None
    ]
    return max(found, key=lambda pair: (pair[0], pair[1] or 0.0)) if found else None


def _order(kinship: float) -> float:
    """Return a scale on which the same step means as much among strangers as among kin."""
    return float(np.log(max(kinship, _LEAST_KINSHIP)))


@functools.lru_cache(maxsize=1024)
def tolerance_factor(count: int, rate: float, confidence: float) -> float:
    """Return k such that mean + k · deviation of a normal sample bounds all but a share of it.

    One-sided, with the given confidence: from the noncentral t distribution.
    """
    shift = float(stats.norm.isf(rate)) * np.sqrt(count)
    return float(stats.nct.ppf(confidence, count - 1, shift) / np.sqrt(count))
