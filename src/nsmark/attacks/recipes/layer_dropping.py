"""The last layers of a transformer left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.errors import ConfigError, ModelError
from nsmark.models.layers import blocks
from nsmark.transforms.weights import leave_out_layers

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDroppingSettings:
    """Settings of layer dropping."""

    layers: int = 1
    """How many of the last layers are left out; at least one must stay."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ConfigError("layers", self.layers, "must be at least 1")


def apply(stolen: Stolen, settings: LayerDroppingSettings, material: Material) -> Facts:
    """Leave out the last layers, and say so in the model's configuration."""
    network = stolen.encoder.network
    count = len(blocks(network))
    if getattr(network.config, "num_hidden_layers", None) != count:
        raise ModelError(
            f"layers cannot be left out of this model of family {stolen.encoder.folder.model_type}",
            "its layers are not kept one by one, or its config.json does not count them",
        )
    if settings.layers >= count:
        raise ConfigError("layers", settings.layers, f"must be less than the model's {count}")
    leave_out_layers(settings.layers)(stolen.encoder)
    _count_layers(network.config, count, count - settings.layers)
    _check_opens(network)
    return {"layers_before": count, "layers_after": count - settings.layers}


def _count_layers(config: Any, before: int, after: int) -> None:
    """Write the number of layers into a configuration, whatever the family calls it."""
    for name, value in config.to_dict().items():
        # Such as layer_types, one entry per layer.
        if "layer" in name and isinstance(value, list) and len(value) == before:
            setattr(config, name, value[:after])
    config.num_hidden_layers = after


def _check_opens(network: Any) -> None:
    """Refuse a model whose configuration asks for other weights than it now has."""
    config = network.config
    with torch.device("meta"):
        planned = type(network)(type(config).from_dict(config.to_dict()))
    wanted, there = (
        # A pooler nobody reads may have been left away.
        {name for name in model.state_dict() if not name.startswith("pooler.")}
        for model in (planned, network)
    )
    if wanted != there:
        raise ModelError(
            f"without its last layers the model would lack {sorted(wanted ^ there)[0]!r}",
            "layers cannot be left out of models of this family",
        )


RECIPE = Recipe(
    source="Sajjad, Dalvi, Durrani and Nakov, On the effect of dropping layers of pre-trained "
    "transformer models, 2020 (top-layer dropping)",
    deviations="No training afterwards; chain with fine-tuning for it. A final norm stays. Models "
    "that share one layer's weights among all (ALBERT) are refused.",
    cost="none; it makes serving cheaper",
    keeps="some of it: answers are those of an earlier layer, which a new head can still use",
    settings=LayerDroppingSettings,
    apply=apply,
    trials=("layers=1", "layers=2"),
)
