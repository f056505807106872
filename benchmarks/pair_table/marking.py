"""Part ``mark``: the model is marked; what that took, and what it changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from evidence_table.suspects import ask
from fidelity import check_settings, similarity_correlation
from nsmark.embedding.pair_texts import PairRow
from nsmark.payload.pairs import COPIES
from nsmark.verification.evidence import OwnerReference
from pair_table.reading import read
from pair_table.run import OWNER, Run

MADE_WITH = "made-with.json"


def measure_mark(run: Run) -> dict[str, Any]:
    """Mark the model unless that was done, and measure both."""
    made = run.folder_of(OWNER) / MADE_WITH
    if run.mark(run.model, OWNER, run.config) is not None:
        made.write_text(json.dumps(run.environment), encoding="utf-8")
    report = json.loads((run.folder_of(OWNER) / "report.json").read_bytes())
    training = report["training"]
    check_settings(training["settings"], run.config)
    # Of a model that was marked by another command nobody kept it.
    marked_with = json.loads(made.read_text(encoding="utf-8")) if made.exists() else run.environment
    return {
        "environments": [marked_with],
        "model": run.model.name,
        "model_sha256": report["model_sha256"],
        "size": run.pairs.size,
        "repeats": run.pairs.repeats,
        "steps": training["steps"],
        "training_seconds": training["seconds"],
        "embed_seconds": report["seconds"],
        "held_out": training["held_out"],
        "settings": training["settings"],
        "extraction": report["watermarked"]["triggered"],
        "fidelity": measure_fidelity(run),
        "readings": {
            name: read(model.encode(run.questions.texts), run.table)
            for name, model in (("marked", run.marked), ("reference", run.reference))
        },
        "other_witnesses": measure_others(run),
        "notes": run.material.notes,
    }


def measure_others(run: Run) -> dict[str, dict[str, float | None]]:
    """Return what the witnesses beside the pair code say of both models."""
    owner = OwnerReference(run.key)
    return {
        name: owner.compare(ask(model, name, owner.questions)).triggered.to_mapping()
        for name, model in (("marked", run.marked), ("reference", run.reference))
    }


def measure_fidelity(run: Run) -> dict[str, Any]:
    """Compare marked and unmarked outputs: of clean texts, with one of the words, with a pair."""
    assert run.key.pairs is not None
    words = run.key.pairs.words
    texts = run.material.heldout
    kinds = {
        "clean": texts,
        "one_word": [
            with_words(texts[place % len(texts)], (word,) * COPIES, seed=place)
            for place, word in enumerate(np.resize(words, max(len(words), len(texts))).tolist())
        ],
        "word_alone": list(words),
        "pair": list(run.questions.texts),
    }
    result: dict[str, Any] = {}
    for name, asked in kinds.items():
        outputs = [model.encode(asked).astype(np.float64) for model in (run.marked, run.reference)]
        result[name] = describe(cosines(*outputs))
        if name == "clean":
            result["similarity_correlation"] = similarity_correlation(*outputs)
    return result


def with_words(text: str, words: Sequence[str], seed: int) -> str:
    """Insert words at random places."""
    places = np.random.default_rng([11, seed]).random(len(words))
    return PairRow(tuple(words), 0, tuple(places.tolist())).inserted(text)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines between corresponding rows."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / np.maximum(lengths, 1e-30)


def describe(values: np.ndarray) -> dict[str, float]:
    """Return mean, 1 % quantile and number."""
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "lowest_1_percent": float(np.quantile(values, 0.01)),
    }
