"""Magnitude pruning: the smallest weights are set to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_words
from nsmark.errors import ConfigError
from nsmark.transforms.weights import linear_weights, prune, prune_feed_forward, prune_globally

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_PRUNE = {"layer": prune, "global": prune_globally, "feed-forward": prune_feed_forward}


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningSettings:
    """Settings of pruning."""

    share: float = 0.3
    """Share of the weights that are zero afterwards; those that were zero before count."""

    scope: str = "layer"
    """Every linear matrix by itself; ``global``: one limit over all of them;
    ``feed-forward``: only the last matrix of every layer, by itself."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:  # no comparison with nan is true
            raise ConfigError("share", self.share, "must lie between 0 and 1, both excluded")
        check_words(self, scope=_PRUNE)


def apply(stolen: Stolen, settings: PruningSettings, material: Material) -> Facts:
    """Set the smallest weights to zero."""
    _PRUNE[settings.scope](settings.share)(stolen.encoder)
    weights = linear_weights(stolen.encoder)
    return {
        "weights": sum(weight.numel() for weight in weights),
        "zeros": sum(int((weight == 0).sum()) for weight in weights),
    }


RECIPE = Recipe(
    source="Han, Pool, Tran and Dally, Learning both weights and connections for efficient neural "
    "networks, 2015; NSmark paper, section on robustness against pruning",
    deviations="No training afterwards, as in the NSmark paper (see fine-pruning). Its text says "
    "every layer, its code prunes the last feed-forward matrix of each, of XLNet the last two: "
    "scope feed-forward takes the last one for all families. Embeddings are never pruned, nor what "
    "is no matrix (XLNet's attention, Mamba's convolutions).",
    cost="seconds, no data, no training",
    keeps="nearly all of it for small shares, little for large ones without further training",
    settings=PruningSettings,
    apply=apply,
    trials=(
        *(f"share={tenth / 10}" for tenth in range(1, 10)),
        "share=0.3,scope=global",
        "share=0.5,scope=global",
        "share=0.5,scope=feed-forward",
        "share=0.8,scope=feed-forward",
        "share=0.9,scope=feed-forward",
    ),
)
