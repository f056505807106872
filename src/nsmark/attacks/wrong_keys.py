"""What a claimant gets who has a wrong part of a key (paper: Fig. sig, Tables E and N).

The trigger, the signature, the extractor or the null space is replaced, and both of the paper's
witnesses are measured on the same model, with ours: the derived readout and the pair code.
``verify`` would refuse such keys before asking anything: all follows from the signature, or is
sealed by it. Here the numbers are what counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.core.derive import signature_bits, spreading_code
from nsmark.core.extraction import derived_extraction_rate, extraction_rate
from nsmark.core.mlp import Layer, mlp_forward
from nsmark.core.null_space import matching_degree, null_space_basis
from nsmark.core.pair_code import read_pair_code
from nsmark.core.spread import despread
from nsmark.corpus import pool_texts
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.pairs import derive_pairs
from nsmark.payload.trigger import trigger_text
from nsmark.payload.word_list import ordinary_word_list, published_word_list
from nsmark.suspects.base import Suspect

Rows = NDArray[np.float64]

SMALL = 1e-3
"""The size of N's entries where they are called small. The paper's formula falls for it; ours
brings the columns of N to length 1 first."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All witnesses with one combination of parts."""

    part: str
    """What is wrong."""
    extraction_rate: float
    matching_degree: float
    derived_extraction_rate: float | None = None
    """None where nothing that it depends on is wrong but what stands in another row."""
    pair_code_rate: float | None = None
    """The same; None also without a pair code."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the values by name."""
        return asdict(self)


def with_wrong_parts(key: WatermarkKey, suspect: Suspect, seed: int = 0) -> list[Measured]:
    """Measure a model with the key, and with every part of it replaced.

    Args:
        key: The key.
        suspect: The model that the key belongs to, or any other.
        seed: Of whatever is drawn.
    """
    rng = np.random.default_rng(seed)
    payload, texts = key.payload(), key.payload().verification_texts
    words = [word for word in published_word_list().words if word != payload.trigger]
    trigger = str(rng.choice(words))
    wrongly_triggered = [
        trigger_text(text, number, trigger, key.signature, payload.config)
        for number, text in enumerate(texts)
    ]
    other = rng.bytes(64)
    pairs = _pairs_of(key, other)
    asked = [*payload.triggered_texts(), *wrongly_triggered, *(t for p in pairs for t in p.texts)]
    outputs = suspect.outputs(asked).astype(np.float64)
    right, wrong, *of_pairs = np.split(
        outputs, np.cumsum([len(texts), len(texts), *(len(p.texts) for p in pairs)])[:-1]
    )
    read = [_pair_rate(p, answers) for p, answers in zip(pairs, of_pairs, strict=True)]
    own_pairs, other_pairs = read or (None, None)
    basis = null_space_basis(key.owner_triggered.astype(np.float64).T)
    degrees = {"right": matching_degree(right.T, basis), "wrong": matching_degree(wrong.T, basis)}

    def derived(rows: Rows, signature: bytes) -> float:
        return derived_extraction_rate(rows, signature, key.configuration.num_bits)

    own = key.signature
    rows = [
        Measured("nothing", _rate(key, right), degrees["right"], derived(right, own), own_pairs),
        Measured("trigger", _rate(key, wrong), degrees["wrong"], derived(wrong, own)),
        Measured("signature's bits", _rate_of_bits(key, right, other), degrees["right"]),
        Measured(
            "signature",
            _rate(key, right, signature=other),
            degrees["right"],
            derived(right, other),
            other_pairs,
        ),
        Measured(
            "trigger and signature",
            _rate(key, wrong, signature=other),
            degrees["wrong"],
            derived(wrong, other),
        ),
    ]
    for name, extractor in _wrong_extractors(key, rng):
        rate = _rate(key, right, extractor=extractor)
        rows.append(Measured(f"extractor: {name}", rate, degrees["right"]))
    for name, wrong_basis in _wrong_bases(basis, rng):
        degree = matching_degree(right.T, wrong_basis)
        rows.append(Measured(f"null space: {name}", rows[0].extraction_rate, degree))
    return rows


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Texts of a pair code, and what its table says of them."""

    texts: list[str]
    numbers: NDArray[np.intp]
    signs: NDArray[np.int64]


def _pairs_of(key: WatermarkKey, other: bytes) -> list[_Pairs]:
    """Return the key's pair code, and that of another signature; nothing without one."""
    if key.pairs is None:
        return []
    wrong = derive_pairs(
        other,
        config=key.pairs.config,
        word_list=ordinary_word_list(),
        pool=pool_texts(),
        trigger=key.trigger,
    )
    return [
        _Pairs(pairs.pair_texts(signature), pairs.pair_numbers(), pairs.signs(signature))
        for signature, pairs in ((key.signature, key.pairs), (other, wrong))
    ]


def _pair_rate(pairs: _Pairs, outputs: Rows) -> float:
    return read_pair_code(outputs, pairs.numbers, pairs.signs).rate


def _wrong_extractors(
    key: WatermarkKey, rng: np.random.Generator
) -> Iterator[tuple[str, list[Layer]]]:
    drawn: list[Layer] = [
        (
            (rng.standard_normal(weight.shape) * weight.std()).astype(np.float32),
            (rng.standard_normal(bias.shape) * max(bias.std(), 1e-3)).astype(np.float32),
        )
        for weight, bias in key.extractor
    ]
    yield "random", drawn
    last, bias = key.extractor[-1]
    order = rng.permutation(len(last))
    yield "its outputs in another order", [*key.extractor[:-1], (last[order], bias[order])]


def _wrong_bases(basis: Rows, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
    yield "entries from U[0, 1]", rng.uniform(0.0, 1.0, basis.shape)
    yield "small entries", SMALL * rng.uniform(0.0, 1.0, basis.shape)
    yield "one column", rng.uniform(0.0, 1.0, (len(basis), 1)) / np.sqrt(len(basis))
    orthonormal, _ = np.linalg.qr(rng.standard_normal(basis.shape))
    yield "orthonormal at random", orthonormal


def _rate(
    key: WatermarkKey,
    rows: Rows,
    *,
    signature: bytes | None = None,
    extractor: list[Layer] | None = None,
) -> float:
    config = key.configuration
    mapped = mlp_forward(rows, extractor if extractor is not None else key.extractor)
    return extraction_rate(
        mapped, signature or key.signature, config.num_bits, config.spread_factor
    )


def _rate_of_bits(key: WatermarkKey, rows: Rows, other: bytes) -> float:
    """Return how many bits of another signature are read with the right spreading code.

    The most dangerous case of the paper: what is read is the owner's signature, and half of any
    other agrees with it.
    """
    config = key.configuration
    code = spreading_code(key.signature, config.num_bits * config.spread_factor)
    read = despread(mlp_forward(rows, key.extractor), code, config.num_bits)
    return float(np.mean(read == signature_bits(other, config.num_bits)))
