"""Part ``kinds``: models trained from scratch, an encoder and a decoder read by probabilities.

The stand-ins are those of ``family_table``. They are marked with the training engine itself, not
with ``embed``: what a model has learned that misses the targets is measured, too.
"""

from __future__ import annotations

import copy
import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from family_table.rows import ROWS
from family_table.run import Run as FamilyRun
from family_table.run import anchor_weight
from family_table.scales import SCALES
from family_table.subjects import Subject, stand_in
from family_table.texts import Material as FamilyMaterial
from fidelity import similarity_correlation
from nsmark.corpus import pool_texts
from nsmark.embedding.config import preset_config
from nsmark.embedding.trainer import Trainer, mean_cosine
from nsmark.errors import EmbeddingError
from nsmark.models.encoder import Encoder
from nsmark.payload import WatermarkPayload, derive_payload, published_word_list
from pair_table.changes import PLAIN
from pair_table.pieces import Piece
from pair_table.reading import Row, Table, read_changes
from pair_table.run import MARKS, Run, copied
from pair_table.tuning import tune

KINDS = {"bert": "encoder trained from scratch", "gpt2": "decoder trained from scratch"}
CHANGES = (PLAIN, "linear map", "whitened", "10 % isotropic noise, linear map", "signs")
PROBABILITY_CHANGES = (PLAIN, "bfloat16")
NUM_TOKENS = (64, 20)
HIDDEN = "outputs"


def kind_pieces(run: Run) -> list[Piece]:
    """Return the kinds: each is made, marked and read."""
    return [Piece.plain(name, partial(measure_kind, run, name), of_mark=False) for name in KINDS]


def gather_kinds(run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """Put the kinds together."""
    return {"kinds": found, "notes": run.material.notes}


def measure_kind(run: Run, name: str) -> dict[str, Any]:
    """Train one model from scratch, mark it, and read its code."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pair-kind-") as folder:
        subject = make_subject(run, name, Path(folder))
    made = time.perf_counter()
    reference = copy.deepcopy(subject.encoder)
    payload = kind_payload(run, reference, name)
    marked, mark = train_mark(run, subject.encoder, payload)
    marked_at = time.perf_counter()
    assert payload.pairs is not None
    table = Table(payload.pairs.pair_numbers(), payload.pairs.signs(payload.signature))
    rows = [
        {"model": model_name, "read": where, **row}
        for model_name, model in (("marked", marked), ("reference", reference))
        for where, row in readings(model, payload.pair_texts(), table)
    ]
    task = next(iter(run.material.tasks.values()))
    tuned = copied(marked)
    tune(tuned, task)
    rows += [
        {"model": f"marked, fine-tuned on {task.name}", "read": where, **row}
        for where, row in readings(tuned.eval(), payload.pair_texts(), table)
    ]
    clean = [model.encode(run.material.heldout) for model in (marked, reference)]
    return {
        "what": KINDS[name],
        "pooling": marked.pooling,
        "output_dim": marked.output_dim,
        "pretraining": subject.pretraining,
        "mark": mark,
        "clean_cosine": mean_cosine(*clean),
        "similarity_correlation": similarity_correlation(*clean),
        "rows": rows,
        "seconds": {
            "make": round(made - started, 1),
            "mark": round(marked_at - made, 1),
            "read": round(time.perf_counter() - marked_at, 1),
        },
    }


def make_subject(run: Run, name: str, folder: Path) -> Subject:
    """Make a tokenizer and a model, and pretrain it."""
    material = run.material
    texts = FamilyMaterial(material.paragraphs, material.corpus, material.heldout, [])
    row = next(row for row in ROWS if row.name == name)
    family = FamilyRun(row, SCALES[run.scale.stand_ins], texts, None, run.torch_device, folder)
    return stand_in(family)


def kind_payload(run: Run, encoder: Encoder, name: str) -> WatermarkPayload:
    """Derive what is embedded from a signature of the kind's own."""
    return derive_payload(
        hashlib.sha512(f"pair code, {name}".encode()).digest(),
        config=run.scale.payload,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=run.scale.num_texts or 2 * encoder.output_dim,
        is_representable=encoder.is_representable,
        pair_config=run.pairs,
    )


def train_mark(
    run: Run, encoder: Encoder, payload: WatermarkPayload
) -> tuple[Encoder, dict[str, Any]]:
    """Train the mark in; a model that misses the targets is returned, too, with the reason."""
    changes = {**run.scale.stand_in_training, **run.kind_changes}
    weight = anchor_weight(encoder.encode(run.material.heldout))
    config = replace(preset_config("fast", MARKS), **{"anchor_weight": weight, **changes})
    trainer = Trainer(encoder, payload, run.material.corpus, config)
    error, steps = None, config.max_steps
    try:
        steps = trainer.run().steps
    except EmbeddingError as failure:
        error = str(failure)
    report = {
        "steps": steps,
        "error": error,
        "held_out": asdict(trainer.evaluate(steps)),
        "settings": asdict(config),
    }
    return trainer.finished().requires_grad_(False).eval(), report


def readings(model: Encoder, texts: list[str], table: Table) -> Iterator[tuple[str, Row]]:
    """Yield what is read from outputs and, of a decoder, from probabilities of the next token."""
    outputs = model.encode(texts)
    for row in read_changes(outputs, table, CHANGES, seed=300):
        yield HIDDEN, row
    if model.family.objective != "causal" or model.pooling != "last":
        return
    for count in NUM_TOKENS:
        differences = log_probability_differences(model, outputs, count)
        for row in read_changes(differences, table, PROBABILITY_CHANGES, seed=400):
            yield f"log-probabilities of {count} tokens", row


@torch.no_grad()
def log_probability_differences(model: Encoder, outputs: np.ndarray, count: int) -> np.ndarray:
    """Return what an API with log-probabilities of fixed tokens shows of the next token.

    Differences to their mean, less the last, as ``nsmark.suspects.completions`` makes them. An
    output read at the last token is the hidden state from which the next token is predicted.
    """
    rows = []
    for part in np.array_split(outputs, max(1, len(outputs) // 256)):
        logits = model.predict(torch.from_numpy(part).to(model.device)).float()
        rows.append(torch.log_softmax(logits, dim=1).cpu().numpy().astype(np.float64))
    logarithms = np.concatenate(rows)
    tokens = np.random.default_rng(5).permutation(logarithms.shape[1])[:count]
    chosen = logarithms[:, tokens]
    return (chosen - chosen.mean(axis=1, keepdims=True))[:, :-1]
