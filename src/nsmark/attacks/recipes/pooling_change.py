"""The tokens' vectors summed up in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_words
from nsmark.models.folder import POOLINGS

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingChangeSettings:
    """Settings of the pooling change."""

    pooling: str = "max"
    """The new one: ``first``, ``last``, ``mean`` or ``max``."""

    def __post_init__(self) -> None:
        check_words(self, pooling=POOLINGS)


def apply(stolen: Stolen, settings: PoolingChangeSettings, material: Material) -> Facts:
    """Read the model in another way, and let its folder say so."""
    before = stolen.encoder.pooling
    stolen.encoder.pooling = settings.pooling
    stolen.says_pooling = True
    return {"pooling_before": before, "pooling_after": settings.pooling}


RECIPE = Recipe(
    source="ours; Reimers and Gurevych, Sentence-BERT, 2019, compare poolings",
    deviations="No training afterwards, though poolings that a model was not trained for need it. "
    "A bare transformer is written as a sentence-transformers folder, which says its pooling.",
    cost="none",
    keeps="some of it: least where one token is read that was never trained to stand for a text",
    settings=PoolingChangeSettings,
    apply=apply,
    trials=tuple(f"pooling={pooling}" for pooling in POOLINGS),
)
