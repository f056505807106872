"""Measuring now, on texts of the verifier's choice: the strongest form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nsmark.api.opening import Opening
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.errors import KeyFileError, TextPoolError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.folder import model_digest
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.questions import Questions, fresh_payload


@dataclass(frozen=True, slots=True)
class FreshTexts:
    """The owner's model, and randomness that the owner did not choose."""

    owner_model: Path
    randomness: bytes


def fresh_questions(
    key: WatermarkKey, fresh: FreshTexts, pool: Sequence[str] | None, device: str
) -> Questions:
    """Choose texts by the verifier's randomness and ask the owner's model now.

    Args:
        key: The key.
        fresh: The owner's model folder and the randomness.
        pool: The published pool the key names, normalised; None is the built-in one.
        device: Where the owner's model runs.

    Raises:
        KeyFileError: The folder does not hold the model that the key was made with.
        TextPoolError: The pool is not the one the key names.
    """
    if model_digest(fresh.owner_model) != key.model_digest:
        raise KeyFileError(
            f"{fresh.owner_model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
    texts = pool if pool is not None else pool_texts()
    if lines_digest(texts) != key.pool_digest:
        raise TextPoolError(
            "fresh texts come from the published pool, and the key names another one",
            "give the pool that the key names (--pool)",
        )
    payload = fresh_payload(key, fresh.randomness, texts)
    asked = (tuple(payload.triggered_texts()), payload.verification_texts)
    model = Opening(key, device).open(fresh.owner_model)
    assert not isinstance(model, RecordedOutputs)  # noqa: S101 - a folder was given
    outputs = model.outputs([*asked[0], *asked[1]]).astype(np.float32)
    count = len(asked[0])
    return Questions(*asked, outputs[:count], outputs[count:])
