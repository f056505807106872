"""The model families we know: how each is trained and where it is read.

A family is one row. To add one: its ``model_type`` as in config.json, the objective it was
pretrained with, the position its output is read at, the side it is padded on; and a tiny
configuration in ``tests/tiny_models.py``, on which every family is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Objective = Literal["masked", "causal", "permutation"]


@dataclass(frozen=True, slots=True)
class Family:
    """How a family of models is trained and read."""

    objective: Objective
    """The language-model loss L_0: masked tokens, the next token, or permuted tokens (XLNet)."""

    pooling: str
    """Where the output is read if the folder does not say: ``first`` or ``last`` token."""

    padding_side: Literal["left", "right"] = "right"
    """On which side short texts are filled up."""

    half_weights: bool = True
    """Whether it runs with bfloat16 weights; else fp32 weights are cast where they are used."""


_ENCODER = Family("masked", "first")
_DECODER = Family("causal", "last")

FAMILIES: dict[str, Family] = {
    "albert": _ENCODER,
    "bert": _ENCODER,
    "camembert": _ENCODER,
    "deberta": _ENCODER,
    "deberta-v2": _ENCODER,  # DeBERTa v2 and v3
    "distilbert": _ENCODER,
    "electra": _ENCODER,
    "modernbert": _ENCODER,
    "mpnet": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": _ENCODER,
    "gpt2": _DECODER,
    "llama": _DECODER,
    "mamba": _DECODER,
    "mistral": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    # Its summary token stands at the end, so texts are filled up in front.
    # Its positions are computed in float32, and do not go together with other weights.
    "xlnet": Family("permutation", "last", "left", half_weights=False),
}

# Models of other families can be measured, though not marked: a suspect may be anything.
UNKNOWN_FAMILY = Family("causal", "last")
