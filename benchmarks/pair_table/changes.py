"""What is done to outputs before a pair code is read from them; no torch."""

from __future__ import annotations

import numpy as np

from nsmark.transforms.outputs import (
    Change,
    Draw,
    Rows,
    chain,
    isotropic_noise,
    linear_map,
    noise_per_dimension,
    principal_cut,
    random_cut,
    rounded,
    scale_and_sign,
    signs,
    unit_length,
    whitening,
)

PLAIN = "as it is"


def nothing(example: Rows, rng: np.random.Generator) -> Change:
    """Leave outputs alone."""
    return lambda rows: rows


def scale(example: Rows, rng: np.random.Generator) -> Change:
    """Multiply every answer by its own random positive number."""
    return lambda rows: np.asarray(rows * rng.uniform(0.2, 5.0, (len(rows), 1)))


def bfloat16(example: Rows, rng: np.random.Generator) -> Change:
    """Keep the eight leading bits of every number, rounded to the nearest."""

    def change(rows: Rows) -> Rows:
        bits = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32)
        kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16
        return (kept.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)

    return change


REQUIRED: dict[str, Draw] = {
    "linear map": linear_map,
    "2 linear maps": chain(linear_map, linear_map),
    "3 linear maps": chain(linear_map, linear_map, linear_map),
    "linear map, unit length": chain(linear_map, unit_length),
    "whitened": whitening,
    "3 % noise per dimension, linear map": chain(noise_per_dimension(0.03), linear_map),
    "10 % noise per dimension, linear map": chain(noise_per_dimension(0.1), linear_map),
    "50 % noise per dimension, linear map": chain(noise_per_dimension(0.5), linear_map),
    "3 % isotropic noise, linear map": chain(isotropic_noise(0.03), linear_map),
    "10 % isotropic noise, linear map": chain(isotropic_noise(0.1), linear_map),
    "30 % isotropic noise, linear map": chain(isotropic_noise(0.3), linear_map),
    "cut to 128 random dimensions": random_cut(128),
    "cut to 128 principal dimensions": principal_cut(128),
    "cut to 16 random dimensions": random_cut(16),
    "cut to 16 principal dimensions": principal_cut(16),
    "bfloat16": bfloat16,
    "scale per text": scale,
}
"""Changes behind which nearly all of the table is to be read."""

COARSE: dict[str, Draw] = {"8 bits": rounded(255), "signs": signs}
"""Changes that leave little of every number."""

BEYOND: dict[str, Draw] = {
    "cut to 4 random dimensions": random_cut(4),
    "cut to 4 principal dimensions": principal_cut(4),
    "linear map, scale and sign per text": chain(linear_map, scale_and_sign),
}
"""Changes without a target: reported, whatever they do. A random sign per text hides the code."""

CHANGES: dict[str, Draw] = {PLAIN: nothing, **REQUIRED, **COARSE, **BEYOND}


def changed(outputs: Rows, change: str, seed: int) -> Rows:
    """Return outputs as an API would send them after a change, rounded to float32."""
    rows = np.asarray(outputs, dtype=np.float64)
    drawn = CHANGES[change](rows, np.random.default_rng(seed))(rows)
    return drawn.astype(np.float32).astype(np.float64)
