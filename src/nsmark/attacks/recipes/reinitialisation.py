"""The last layers drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.alterations.weights import reinitialise
from nsmark.attacks.recipe import Facts, Recipe
from nsmark.errors import ConfigError
from nsmark.models.layers import blocks

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinitialisationConfig:
    """Settings of reinitialisation."""

    layers: int = 1
    """How many of the last layers are drawn anew, at most all of them."""

    seed: int = 0
    """Seed of the new weights."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ConfigError("layers", self.layers, "must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must lie between 0 and 2^63 - 1")


def apply(stolen: Stolen, config: ReinitialisationConfig, material: Material) -> Facts:
    """Draw the matrices of the last layers anew."""
    layers = blocks(stolen.encoder.network)
    if config.layers > len(layers):
        raise ConfigError("layers", config.layers, f"the model has only {len(layers)}")
    reinitialise(config.layers, config.seed)(stolen.encoder)
    drawn = [weight for layer in layers[-config.layers :] for weight in layer.parameters()]
    return {
        "layers": len(layers),
        "weights": sum(weight.numel() for weight in drawn if weight.dim() > 1),
    }


RECIPE = Recipe(
    name="reinitialisation",
    summary="the last layers drawn anew",
    kind="weights",
    source="Zhang, Wu, Katiyar, Weinberger and Artzi, Revisiting few-sample BERT fine-tuning, "
    "2021, who draw the last layers anew before they fine-tune; as an attack ours",
    deviations="Every matrix keeps its own mean and spread, whatever rule its family draws by; "
    "biases and norms stay. No training afterwards; chain with fine-tuning for it.",
    cost="none by itself; without training the model is of little use",
    keeps="little without training: new layers mix what the kept ones found",
    settings=ReinitialisationConfig,
    apply=apply,
    trials=("layers=1", "layers=2"),
)
