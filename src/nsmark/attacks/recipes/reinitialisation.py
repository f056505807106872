"""The last layers drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.errors import ConfigError
from nsmark.models.layers import blocks
from nsmark.transforms.weights import reinitialise

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinitialisationSettings:
    """Settings of reinitialisation."""

    layers: int = 1
    """How many of the last layers are drawn anew, at most all of them."""

    seed: int = 0
    """Seed of the new weights."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ConfigError("layers", self.layers, "must be at least 1")
        check_ranges(self, seed=SEEDS)


def apply(stolen: Stolen, settings: ReinitialisationSettings, material: Material) -> Facts:
    """Draw the matrices of the last layers anew."""
    layers = blocks(stolen.encoder.network)
    if settings.layers > len(layers):
        raise ConfigError("layers", settings.layers, f"the model has only {len(layers)}")
    reinitialise(settings.layers, settings.seed)(stolen.encoder)
    drawn = [weight for layer in layers[-settings.layers :] for weight in layer.parameters()]
    return {
        "layers": len(layers),
        "weights": sum(weight.numel() for weight in drawn if weight.dim() > 1),
    }


RECIPE = Recipe(
    source="Zhang, Wu, Katiyar, Weinberger and Artzi, Revisiting few-sample BERT fine-tuning, "
    "2021, who draw the last layers anew before they fine-tune; as an attack ours",
    deviations="Every matrix keeps its own mean and spread, whatever rule its family draws by; "
    "biases and norms stay. No training afterwards; chain with fine-tuning for it.",
    cost="none by itself; without training the model is of little use",
    keeps="little without training: new layers mix what the kept ones found",
    settings=ReinitialisationSettings,
    apply=apply,
    trials=("layers=1", "layers=2"),
)
