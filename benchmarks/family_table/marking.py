"""The mark is trained in, and what that took is written down."""

from __future__ import annotations

from dataclasses import asdict

from family_table.report import Report
from family_table.run import Run
from family_table.seeds import TRAINING_SEEDS
from family_table.subjects import Subject
from nsmark.embedding.stages import Trained, train
from nsmark.errors import EmbeddingError
from nsmark.payload.payload import WatermarkPayload


def mark(run: Run, subject: Subject, payload: WatermarkPayload) -> tuple[Trained, Report]:
    """Train the mark in; where a seed does not reach the targets, the next one is tried.

    Raises:
        EmbeddingError: None of them did.
    """
    encoder, failures = subject.encoder, []
    # A model that is not in a folder cannot be had anew.
    seeds = TRAINING_SEEDS if subject.folder is not None else TRAINING_SEEDS[:1]
    outputs = encoder.encode(run.material.heldout)
    for seed in seeds:
        config = run.config(outputs, seed)
        try:
            trained = train(encoder, payload, run.material.corpus, config)
        except EmbeddingError as error:
            if seed == seeds[-1]:
                raise
            failures.append({"seed": seed, "error": str(error)})
            encoder = run.open(subject.folder)
            continue
        break
    stages = trained.results
    return trained, {
        "steps": sum(stage.steps for stage in stages),
        "seconds": round(sum(stage.seconds for stage in stages), 1),
        "stages": [
            {
                "steps": stage.steps,
                "seconds": round(stage.seconds, 1),
                "held_out": asdict(stage.last),
            }
            for stage in stages
        ],
        "peak_memory_bytes": max(stage.peak_memory for stage in stages),
        "memory_kind": "device" if run.device.type == "cuda" else "process",
        "seed": seed,
        "failed_tries": failures,
        "settings": asdict(config),
    }
