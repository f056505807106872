"""Signs: one bit per dimension, as vector databases with binary embeddings keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.transforms.changes import Signs

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_EXAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SignsSettings:
    """There is nothing to choose."""


def apply(stolen: Stolen, settings: SignsSettings, material: Material) -> Facts:
    """Send 1 or −1 for every number."""
    stolen.add_change(Signs())
    found = stolen.outputs(material.some_texts(_EXAMPLES, 0))
    return {
        "output_dim": stolen.output_dim,
        "dimensions_that_vary": int(np.count_nonzero(np.ptp(found, axis=0))),
    }


RECIPE = Recipe(
    source="ours as an attack; Shakir, Aarsen, Lee: Binary and Scalar Embedding Quantization, 2024",
    deviations="Answers are sent as 1 and −1, not as packed bits; zero counts as positive.",
    cost="nothing; answers become 32 times smaller",
    keeps="search, with losses that grow where dimensions seldom change their sign; angles are "
    "known roughly only",
    settings=SignsSettings,
    apply=apply,
)
