"""Measuring now, on texts of the verifier's choice: the strongest form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nsmark.api.opening import Opening
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.errors import KeyFileError, TextPoolError, UsageError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.folder import model_digest
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.questions import (
    FreshPairs,
    Questions,
    fresh_payload,
    key_questions,
    pair_questions,
)


@dataclass(frozen=True, slots=True)
class FreshTexts:
    """Randomness that the owner did not choose, and the owner's model where it is at hand.

    Texts of a pair code are chosen by it in any case. What is compared with the owner's outputs
    needs them to the new texts, and so the model.
    """

    owner_model: Path | None
    randomness: bytes


def fresh_questions(
    key: WatermarkKey,
    fresh: FreshTexts,
    pool: Sequence[str] | None,
    device: str,
    num_pair_texts: int | None = None,
) -> Questions:
    """Choose texts by the verifier's randomness and ask the owner's model now.

    Args:
        key: The key.
        fresh: The owner's model folder and the randomness.
        pool: The published pool the key names, normalised; None is the built-in one.
        device: Where the owner's model runs.
        num_pair_texts: Ask only so many texts of the pair code.

    Raises:
        UsageError: There is neither the owner's model nor a pair code.
        KeyFileError: The folder does not hold the model that the key was made with.
        TextPoolError: The pool is not the one the key names.
    """
    texts = pool if pool is not None else pool_texts()
    # Never from a pool that the owner made: a text could tell a model what the table says.
    pairs = pair_questions(key, num_pair_texts, FreshPairs(fresh.randomness, pool_texts()))
    if fresh.owner_model is None:
        if pairs is None:
            raise UsageError(
                "fresh texts need the owner's model, or a key with a pair code",
                "give --owner-model, too",
            )
        return replace(key_questions(key, 0), pairs=pairs)
    if model_digest(fresh.owner_model) != key.model_digest:
        raise KeyFileError(
            f"{fresh.owner_model} does not hold the model that the key names",
            "give the folder that `nsmark embed` wrote, unchanged",
        )
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
    return Questions(*asked, outputs[:count], outputs[count:], pairs)
