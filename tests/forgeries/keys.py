"""Keys that a false owner files: well-formed, sealed by his own identity, about anything."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handmade_keys import make_key, reseal
from nsmark.core import watermark_vector
from nsmark.keyfile import ControlRecord, WatermarkKey
from nsmark.suspects import RecordedOutputs

NUM_IDENTITIES = 4
NUM_TEXTS, OUTPUT_DIM = 64, 16
Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]


@functools.cache
def base_key(
    identity: int = 1,
    num_texts: int = NUM_TEXTS,
    output_dim: int = OUTPUT_DIM,
    hidden_sizes: tuple[int, ...] = (6,),
) -> WatermarkKey:
    """An honest key to start from.

    It promises the trained extractor only: with the derived readout among its marks a forger
    would have more to forge.
    """
    key = make_key(
        identity_seed=identity,
        num_texts=num_texts,
        output_dim=output_dim,
        hidden_sizes=hidden_sizes,
    )
    configuration = key.configuration.model_copy(update={"marks": ("paper",)})
    return reseal(key, identity, configuration=configuration)


def identity_of(rng: np.random.Generator) -> int:
    return int(rng.integers(1, NUM_IDENTITIES + 1))


def file_key(key: WatermarkKey, identity: int, **changes: Any) -> WatermarkKey:
    """Change what a key holds and seal it again."""
    for name in ("owner_triggered", "owner_untriggered", "null_basis"):
        if changes.get(name) is not None:
            changes[name] = changes[name].astype(np.float32)
    return reseal(key, identity, **changes)


def extractor_reading(
    key: WatermarkKey, direction: NDArray[np.floating], bias: float = 0.0
) -> Layers:
    """An extractor that gives the watermark vector where ``direction · x + bias`` is 1."""
    layers = [(np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in key.extractor]
    layers[0][0][0] = direction
    layers[0][1][0] = bias
    for weight, _ in layers[1:-1]:
        weight[0, 0] = 1.0
    config = key.configuration
    layers[-1][0][:, 0] = watermark_vector(key.signature, config.num_bits, config.spread_factor)
    return tuple(layers)


def trained_extractor(key: WatermarkKey, outputs: RecordedOutputs, penalty: float = 1e-3) -> Layers:
    """What a stranger can train on anybody's model: read 1 from the trigger, 0 without it."""
    rows = np.vstack([outputs.triggered, outputs.untriggered])
    wanted = np.repeat([1.0, 0.0], len(outputs.triggered))
    centre = rows.mean(axis=0)
    gram = (rows - centre).T @ (rows - centre)
    gram += penalty * np.trace(gram) / len(gram) * np.eye(len(gram))
    direction = np.linalg.solve(gram, (rows - centre).T @ (wanted - 0.5))
    # Beyond half way all is trigger: a second unit would only make the reading sharper.
    return extractor_reading(key, direction, float(0.5 - direction @ centre))


def memorising_extractor(
    key: WatermarkKey, direction: NDArray[np.floating], values: NDArray[np.floating], width: float
) -> Layers:
    """An extractor that knows outputs by heart: it reads only where ``direction · x`` is known.

    Four units for each known value give 1 within ``width`` of it and 0 farther away than twice
    that, so whatever differs a little, such as a model's kin, is not read.
    """
    layers = [(np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in key.extractor]
    (first, first_bias), (last, _) = layers
    steps = np.array([-2.0, -1.0, 1.0, 2.0]) * width
    signs = np.array([1.0, -1.0, -1.0, 1.0]) / width
    count = 4 * len(values)
    first[:count] = direction
    first_bias[:count] = -(np.asarray(values)[:, None] + steps).ravel()
    config = key.configuration
    vector = watermark_vector(key.signature, config.num_bits, config.spread_factor)
    last[:, :count] = np.outer(vector, np.tile(signs, len(values)))
    return tuple(layers)


def control_record(rate: float, degree: float, name: str = "reference") -> ControlRecord:
    """What a dishonest owner says that he measured."""
    values = {"extraction_rate": rate, "invariant_matching_degree": degree}
    return ControlRecord(name=name, triggered=values, untriggered=values)
