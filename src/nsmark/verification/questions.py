"""What a suspect is asked, and what the owner's model answered to the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import UsageError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.payload import WatermarkPayload, derive_texts

_LEAST_RANDOM_BYTES = 16


@dataclass(frozen=True, slots=True)
class Questions:
    """Texts with and without the trigger; outputs have one row per text."""

    triggered: tuple[str, ...]
    untriggered: tuple[str, ...]
    owner_triggered: NDArray[np.float32]
    owner_untriggered: NDArray[np.float32]


def key_questions(key: WatermarkKey) -> Questions:
    """Return the questions that a key holds, with the owner's stored answers."""
    payload = key.payload()
    return Questions(
        tuple(payload.triggered_texts()),
        payload.verification_texts,
        key.owner_triggered,
        key.owner_untriggered,
    )


def fresh_payload(key: WatermarkKey, randomness: bytes, pool: Sequence[str]) -> WatermarkPayload:
    """Choose texts and trigger positions by a verifier's randomness instead of the signature.

    Nobody could prepare for them. The trigger stays: it is what the model was trained with.

    Args:
        key: The key.
        randomness: At least 16 bytes that the owner did not choose.
        pool: The published pool the key names, normalised.
    """
    if len(randomness) < _LEAST_RANDOM_BYTES:
        raise UsageError(
            f"{len(randomness)} bytes of randomness are too few",
            f"give at least {2 * _LEAST_RANDOM_BYTES} hexadecimal digits, freshly drawn",
        )
    seed = hashlib.sha512(b"nsmark/v1/fresh\x00" + randomness).digest()
    texts = derive_texts(seed, pool, key.configuration.num_texts)
    return replace(key.payload(), signature=seed, verification_texts=texts)
