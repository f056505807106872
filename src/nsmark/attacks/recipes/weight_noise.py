"""Gaussian noise on every weight matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.alterations.weights import add_noise, linear_weights
from nsmark.attacks.recipe import Facts, Recipe
from nsmark.errors import ConfigError

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_MAX_SHARE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightNoiseConfig:
    """Settings of weight noise."""

    share: float = 0.1
    """Standard deviation of the noise, as a share of the weight matrix's own."""

    seed: int = 0
    """Seed of the noise."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= _MAX_SHARE:  # no comparison with nan is true
            raise ConfigError("share", self.share, f"must be above 0 and at most {_MAX_SHARE:g}")
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must lie between 0 and 2^63 - 1")


def apply(stolen: Stolen, config: WeightNoiseConfig, material: Material) -> Facts:
    """Add noise to every weight matrix."""
    add_noise(config.share, config.seed)(stolen.encoder)
    return {"weights": sum(weight.numel() for weight in linear_weights(stolen.encoder))}


RECIPE = Recipe(
    name="weight-noise",
    summary="noise on every weight",
    kind="weights",
    source="ours; nobody in particular described it, much of the literature tries it",
    deviations="none; embeddings, biases and norms stay as they are",
    cost="seconds, no data, no training",
    keeps="less the more noise there is: every layer adds to it",
    settings=WeightNoiseConfig,
    apply=apply,
    trials=("share=0.02", "share=0.05", "share=0.1", "share=0.15", "share=0.2", "share=0.3"),
)
