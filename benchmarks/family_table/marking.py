"""The mark is trained in, and what that took is written down."""

from __future__ import annotations

import platform
import resource
from dataclasses import asdict

import torch

from family_table.report import Report
from family_table.run import Run
from family_table.seeds import TRAINING_SEEDS
from family_table.subjects import Subject
from nsmark.embedding.trainer import Trainer
from nsmark.errors import EmbeddingError
from nsmark.payload.payload import WatermarkPayload


def mark(run: Run, subject: Subject, payload: WatermarkPayload) -> tuple[Trainer, Report]:
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
        reset_peak_memory(run.device)
        trainer = Trainer(encoder, payload, run.material.corpus, config)
        try:
            result = trainer.run()
        except EmbeddingError as error:
            if seed == seeds[-1]:
                raise
            failures.append({"seed": seed, "error": str(error)})
            encoder = run.open(subject.folder)
            continue
        break
    return trainer, {
        "steps": result.steps,
        "seconds": round(result.seconds, 1),
        "peak_memory_bytes": peak_memory(run.device),
        "memory_kind": "device" if run.device.type == "cuda" else "process",
        "seed": seed,
        "failed_tries": failures,
        "settings": asdict(config),
    }


def reset_peak_memory(device: torch.device) -> None:
    """Start to measure anew, where that can be done."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the peak of the device, or of this process since it began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * (1 if platform.system() == "Darwin" else 1024)
