"""Output noise: Gaussian noise on every answer, new each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges, check_words
from nsmark.transforms.changes import Noise
from nsmark.transforms.outputs import isotropic_noise, noise_per_dimension

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

WAYS = {"per-dimension": noise_per_dimension, "isotropic": isotropic_noise}
_EXAMPLES = 400
_MAX_SHARE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNoiseSettings:
    """Settings of the noise."""

    share: float = 0.1
    """Deviation of the noise, as a share of the answers' own."""

    how: str = "per-dimension"
    """In proportion to the deviation of every dimension; ``isotropic``: of one size everywhere, in
    proportion to the deviation of all entries together, which is more where a model answers nearly
    the same to all texts."""

    seed: int = 0
    """Seed of the noise, and of the choice of texts that deviations are estimated from."""

    def __post_init__(self) -> None:
        check_positive(self, share=10)
        check_words(self, how=WAYS)
        check_ranges(self, seed=SEEDS)


def apply(stolen: Stolen, settings: OutputNoiseSettings, material: Material) -> Facts:
    """Add noise to every answer."""
    texts = material.some_texts(_EXAMPLES, settings.seed)
    change = stolen.draw_change(WAYS[settings.how](settings.share), texts, settings.seed)
    assert isinstance(change, Noise)  # noqa: S101 - both ways are
    return {
        "output_dim": stolen.output_dim,
        "usual_deviation_of_noise": float(np.sqrt(np.mean(change.sizes**2))),
    }


RECIPE = Recipe(
    source="ours; noise on answers is the oldest way to disturb a mark, and nobody's in particular",
    deviations="none; the noise is drawn anew for every answer, also to a text asked before",
    cost="one random number per entry, no training",
    keeps="similarities and predictions as far as the noise is small against what differs between "
    "texts; never all of it",
    settings=OutputNoiseSettings,
    apply=apply,
    trials=("share=0.03", "", "share=0.3", "how=isotropic", "share=0.3,how=isotropic"),
)
