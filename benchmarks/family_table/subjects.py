"""The unmarked models: opened, or made and pretrained."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from family_table.measuring import language_loss
from family_table.pretraining import pretrain
from family_table.random_models import save_random, scale_shape, shape_of, wrapped_network
from family_table.report import Report
from family_table.run import Run
from family_table.tokenizer_training import train_tokenizer
from nsmark.models.encoder import Encoder


@dataclass(frozen=True, slots=True)
class Subject:
    """The unmarked model of a row."""

    encoder: Encoder
    folder: Path | None
    """Where it can be opened again; None for a model that exists in memory alone."""
    pretraining: Report | None = None


def prepare(run: Run) -> Subject:
    """Make or open the model of a row."""
    if run.row.kind == "real":
        return Subject(run.open(required(run.minilm)), run.minilm)
    if run.row.kind == "stand-in":
        return stand_in(run)
    if run.row.adapters:
        return Subject(wrapped_network(run), None)
    tokenizer, folder = minilm_tokenizer(run), run.folder / "model"
    save_random(run, shape_of(run) | {"vocab_size": len(tokenizer)}, tokenizer, folder)
    return Subject(run.open(folder), folder)


def required(minilm: Path | None) -> Path:
    """Refuse to go on without MiniLM's folder."""
    if minilm is None:
        raise ValueError("this row needs --minilm")
    return minilm


def minilm_tokenizer(run: Run) -> Any:
    """Return the tokenizer of the MiniLM folder: BERT's, with 30,522 pieces."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(required(run.minilm), local_files_only=True)


def stand_in(run: Run) -> Subject:
    """Make a small model of a family: a tokenizer, random weights, then pretraining."""
    scale, row = run.scale, run.row
    started = time.perf_counter()
    assert row.tokenizer is not None
    tokenizer = train_tokenizer(row.tokenizer, run.material.paragraphs, scale.vocabulary)
    # Room for tokens that transformers adds to the tokenizers of some families by itself.
    settings = scale_shape(row.model_type, scale) | row.shape
    settings |= {"vocab_size": -(-(len(tokenizer) + 8) // 64) * 64}
    save_random(run, settings, tokenizer, run.folder / "random")
    encoder = run.open(run.folder / "random")
    first = language_loss(encoder, run.material.heldout)
    steps = max(1, round(row.pretraining_share * scale.pretraining_steps))
    pretrain(encoder, run, steps)
    folder = run.folder / "model"
    encoder.save(folder)
    encoder = run.open(folder)
    pretraining = {
        "steps": steps,
        "batch_size": scale.pretraining_batch,
        "language_loss_start": first,
        "language_loss_end": language_loss(encoder, run.material.heldout),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return Subject(encoder, folder, pretraining)
