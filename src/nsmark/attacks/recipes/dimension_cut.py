"""Dimension cut: only some directions of the outputs are sent, as APIs with shorter answers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges, check_words
from nsmark.errors import UsageError
from nsmark.transforms.changes import Linear
from nsmark.transforms.outputs import first_cut, principal_cut, random_cut

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

WAYS = {"principal": principal_cut, "random": random_cut, "first": first_cut}
_EXAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionCutSettings:
    """Settings of the dimension cut."""

    dimensions: int = 0
    """Directions that stay, fewer than the model has; 0: half of them."""

    how: str = "principal"
    """The directions of most variance; ``random``: random ones, orthogonal to each other;
    ``first``: the first entries of every answer."""

    seed: int = 0
    """Seed of random directions, and of the choice of texts that variances are estimated from."""

    def __post_init__(self) -> None:
        check_ranges(self, dimensions=(0, 65536), seed=SEEDS)
        check_words(self, how=WAYS)


def apply(stolen: Stolen, settings: DimensionCutSettings, material: Material) -> Facts:
    """Project every answer on the directions that stay."""
    before = stolen.output_dim
    dimensions = settings.dimensions or before // 2
    if not 1 <= dimensions < before:
        raise UsageError(
            f"of {before} dimensions {dimensions} cannot stay",
            f"choose dimensions between 1 and {before - 1}" if before > 1 else "nothing to cut",
        )
    # At most as many principal directions come out as there are texts.
    count = max(_EXAMPLES, 2 * before) if settings.how == "principal" else _EXAMPLES
    example = stolen.outputs(material.some_texts(count, settings.seed))
    change = WAYS[settings.how](dimensions)(example, np.random.default_rng(settings.seed))
    assert isinstance(change, Linear)  # noqa: S101 - cuts are
    stolen.add_change(change)
    return {
        "output_dim": stolen.output_dim,
        "output_dim_before": before,
        "variance_kept": float(change(example).var(axis=0).sum() / example.var(axis=0).sum()),
    }


RECIPE = Recipe(
    source="ours as an attack; principal components as in Su, Cao, Liu, Ou: Whitening Sentence "
    "Representations, 2021; first entries as in Kusupati et al.: Matryoshka Representation "
    "Learning, 2022",
    deviations="Principal directions keep their variances and the mean stays. The model was not "
    "trained for short answers, as Matryoshka models are.",
    cost="answers to some hundred ordinary texts, then one matrix product per answer",
    keeps="what is in the directions that stay: with principal ones most, until few are left",
    settings=DimensionCutSettings,
    apply=apply,
    trials=("", "how=random", "how=first", "dimensions=16", "dimensions=16,how=random"),
)
