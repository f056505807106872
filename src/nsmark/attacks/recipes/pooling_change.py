"""The tokens' vectors summed up in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.recipe import Facts, Recipe
from nsmark.errors import ConfigError
from nsmark.models.folder import POOLINGS

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingChangeConfig:
    """Settings of the pooling change."""

    pooling: str = "max"
    """The new one: ``first``, ``last``, ``mean`` or ``max``."""

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ConfigError("pooling", self.pooling, f"must be one of {', '.join(POOLINGS)}")


def apply(stolen: Stolen, config: PoolingChangeConfig, material: Material) -> Facts:
    """Read the model in another way, and let its folder say so."""
    before = stolen.encoder.pooling
    stolen.encoder.pooling = config.pooling
    stolen.says_pooling = True
    return {"pooling_before": before, "pooling_after": config.pooling}


RECIPE = Recipe(
    name="pooling-change",
    summary="tokens summed up in another way",
    kind="weights",
    source="ours; Reimers and Gurevych, Sentence-BERT, 2019, compare poolings",
    deviations="No training afterwards, though poolings that a model was not trained for need it. "
    "A bare transformer is written as a sentence-transformers folder, which says its pooling.",
    cost="none",
    keeps="some of it: least where one token is read that was never trained to stand for a text",
    settings=PoolingChangeConfig,
    apply=apply,
    trials=tuple(f"pooling={pooling}" for pooling in POOLINGS),
)
