"""Weights rounded to a few bits, and written back as ordinary numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import check_ranges, check_words
from nsmark.errors import ConfigError, MissingExtraError
from nsmark.transforms.weights import linear_weights, quantise

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

_OWN = "symmetric"
# Which bits each package has a format for.
_PACKAGES = {"torchao": (8,), "bitsandbytes": (4, 8)}
_HOWS = (_OWN, *_PACKAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisationSettings:
    """Settings of quantisation."""

    bits: int = 8
    """Bits of a weight."""

    how: str = _OWN
    """Every row to levels around 0, its largest entry the last one; ``torchao``: its int8 weights;
    ``bitsandbytes``: int8 by rows, or NF4 by blocks of 64 for 4 bits. Both are in the
    extra ``quantisation``."""

    def __post_init__(self) -> None:
        check_ranges(self, bits=(2, 8))
        check_words(self, how=_HOWS)
        if self.how != _OWN and self.bits not in _PACKAGES[self.how]:
            known = " or ".join(map(str, _PACKAGES[self.how]))
            raise ConfigError("bits", self.bits, f"must be {known} with {self.how}")


@torch.no_grad()
def apply(stolen: Stolen, settings: QuantisationSettings, material: Material) -> Facts:
    """Round every weight matrix."""
    if settings.how != _OWN and find_spec(settings.how) is None:
        raise MissingExtraError(settings.how, "quantisation")
    weights = linear_weights(stolen.encoder)
    before = [weight.detach().clone() for weight in weights]
    if settings.how == _OWN:
        quantise(settings.bits)(stolen.encoder)
    else:
        rounded = _rounding(settings)
        for weight in weights:
            weight.copy_(rounded(weight.detach().clone()))
    moved = sum(float((now - old).square().sum()) for now, old in zip(weights, before, strict=True))
    size = sum(float(old.square().sum()) for old in before)
    return {
        "weights": sum(weight.numel() for weight in weights),
        "relative_error": (moved / size) ** 0.5 if size else 0.0,
    }


def _rounding(settings: QuantisationSettings) -> Callable[[Tensor], Tensor]:
    """Return what a package rounds a matrix by, there and back."""
    if settings.how == "torchao":
        return _by_torchao
    return _by_bitsandbytes_int8 if settings.bits == 8 else _by_bitsandbytes_nf4


def _by_torchao(weight: Tensor) -> Tensor:
    package = import_module("torchao.quantization")
    # It quantises linear modules: the matrix is made one, whatever it was part of.
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    holder = nn.Sequential(linear)
    package.quantize_(holder, package.Int8WeightOnlyConfig())
    found: Tensor = holder[0].weight.dequantize()  # type: ignore[operator]
    return found


def _by_bitsandbytes_int8(weight: Tensor) -> Tensor:
    functional = import_module("bitsandbytes.functional")
    levels, scales, _ = functional.int8_vectorwise_quant(weight.half())  # as LLM.int8() does
    found: Tensor = functional.int8_vectorwise_dequant(levels, scales)
    return found


def _by_bitsandbytes_nf4(weight: Tensor) -> Tensor:
    functional = import_module("bitsandbytes.functional")
    # As one row: on a CPU, bitsandbytes 0.50 takes the scales of other blocks where a row is no
    # multiple of 64 long. Blocks are the same, they go on from row to row.
    row = weight.reshape(1, -1)
    packed, state = functional.quantize_4bit(row, blocksize=64, quant_type="nf4")
    found: Tensor = functional.dequantize_4bit(packed, state)
    return found.reshape(weight.shape)


RECIPE = Recipe(
    source="symmetric: the usual rounding by rows; torchao: int8 weight-only; bitsandbytes: "
    "Dettmers et al., LLM.int8(), 2022, and QLoRA (NF4), 2023",
    deviations="Rounded weights are written back as ordinary numbers, so that the folder opens "
    "everywhere: answers show the loss, files are no smaller. Activations stay exact. Where "
    "a package is missing, the suite says so.",
    cost="seconds, no data, no training; it makes serving cheaper",
    keeps="nearly all of it with 8 bits, most with 4, little with 2",
    settings=QuantisationSettings,
    apply=apply,
    trials=(
        *(f"bits={bits}" for bits in (8, 6, 5, 4, 3, 2)),
        "how=torchao",
        "how=bitsandbytes",
        "bits=4,how=bitsandbytes",
    ),
)
