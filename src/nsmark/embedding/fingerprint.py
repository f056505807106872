"""What a training depends on, by name: a checkpoint goes on only in the run it was made in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nsmark.core.texts import lines_digest
from nsmark.embedding.config import EmbeddingConfig
from nsmark.models.encoder import Encoder
from nsmark.models.folder import model_digest
from nsmark.payload.payload import WatermarkPayload

CHANGEABLE = frozenset(
    {"model_learning_rate", "extractor_learning_rate", "max_steps", "checkpoint_every"}
)
"""Settings a resumed run may change: what one tries after a divergence or too small a budget."""

Fingerprint = dict[str, Any]


_PACKAGES = ("nsmark", "numpy", "torch", "transformers")  # those whose arithmetic it is


def run_fingerprint(
    model: Encoder,
    payload: WatermarkPayload,
    corpus: Sequence[str],
    config: EmbeddingConfig,
    versions: Mapping[str, str | None],
    processes: int = 1,
) -> Fingerprint:
    """Return everything the weights follow from, as JSON values; secrets as digests only."""
    settings = {name: value for name, value in asdict(config).items() if name not in CHANGEABLE}
    # The trigger is one of a few thousand words: without the signature in it, its digest would
    # give it away.
    trigger = hashlib.sha256(payload.signature + payload.trigger.encode("utf-8")).hexdigest()
    pairs, pair_words = payload.pairs, None
    if pairs is not None:
        words = " ".join(pairs.words).encode("utf-8")
        pair_words = hashlib.sha256(payload.signature + words).hexdigest()
    values = {
        **settings,
        **{f"payload {name}": value for name, value in asdict(payload.config).items()},
        "signature": hashlib.sha256(payload.signature).hexdigest(),
        "trigger": trigger,
        "pair code": None if pairs is None else asdict(pairs.config),
        "pair words": pair_words,
        "model": model_digest(model.folder.path),
        "pooling": model.pooling,
        "normalise": model.normalise,
        "max_length": model.max_length,
        "corpus": lines_digest(corpus),
        "processes": processes,
        **{f"{name} version": versions.get(name) for name in _PACKAGES},
    }
    jsonable: Fingerprint = json.loads(json.dumps(values))  # tuples are lists in a file
    return jsonable


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return the names of what differs."""
    names = sorted(found.keys() | expected.keys())
    return [n for n in names if n not in found or n not in expected or found[n] != expected[n]]
