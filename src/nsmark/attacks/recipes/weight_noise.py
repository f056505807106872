"""Gaussian noise on every weight matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges
from nsmark.transforms.weights import add_noise, linear_weights

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_MAX_SHARE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightNoiseSettings:
    """Settings of weight noise."""

    share: float = 0.1
    """Standard deviation of the noise, as a share of the weight matrix's own."""

    seed: int = 0
    """Seed of the noise."""

    def __post_init__(self) -> None:
        check_positive(self, share=10)
        check_ranges(self, seed=SEEDS)


def apply(stolen: Stolen, settings: WeightNoiseSettings, material: Material) -> Facts:
    """Add noise to every weight matrix."""
    add_noise(settings.share, settings.seed)(stolen.encoder)
    return {"weights": sum(weight.numel() for weight in linear_weights(stolen.encoder))}


RECIPE = Recipe(
    source="ours; nobody in particular described it, much of the literature tries it",
    deviations="none; embeddings, biases and norms stay as they are",
    cost="seconds, no data, no training",
    keeps="less the more noise there is: every layer adds to it",
    settings=WeightNoiseSettings,
    apply=apply,
    trials=("share=0.02", "share=0.05", "share=0.1", "share=0.15", "share=0.2", "share=0.3"),
)
