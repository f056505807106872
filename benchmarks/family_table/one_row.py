"""One row from its model to its report, whatever happens on the way."""

from __future__ import annotations

import contextlib
import gc
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from family_table.marking import mark
from family_table.measuring import (
    language_loss,
    matching_degrees,
    measure_extraction,
    measure_fidelity,
)
from family_table.report import Report
from family_table.rows import Row
from family_table.run import Run
from family_table.scales import SCALES
from family_table.seeds import SIGNATURE
from family_table.subjects import Subject, prepare
from family_table.texts import Material
from nsmark.embedding.config import preset_config
from nsmark.embedding.stages import Trained
from nsmark.embedding.trainer import tensor_cores
from nsmark.models.encoder import Encoder
from nsmark.models.loading import resolve_device
from nsmark.payload import derive_payload, published_word_list
from nsmark.payload.config import default_num_texts
from nsmark.payload.payload import WatermarkPayload


def run_row(
    row: Row, scale: str, material: Callable[[], Material], minilm: Path | None, device: str
) -> Report:
    """Measure one row; whatever goes wrong is its result."""
    started = time.perf_counter()
    report: Report = {"name": row.name, "kind": row.kind, "environment": environment(device)}
    try:
        with tempfile.TemporaryDirectory(prefix="embedding-table-") as folder:
            run = Run(row, SCALES[scale], material(), minilm, resolve_device(device), Path(folder))
            report |= {"status": "measured", **measure_row(run)}
    except Exception as error:  # a row that fails is a result, and the others go on
        hint = getattr(error, "hint", None)
        report |= {
            "status": "failed",
            "error": f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else ""),
            "traceback": traceback.format_exc().splitlines()[-12:],
        }
    report["seconds"] = round(time.perf_counter() - started, 1)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return report


def skipped_row(row: Row, device: str) -> Report:
    """Return what stands for a row that was not tried."""
    return {
        "name": row.name,
        "kind": row.kind,
        "environment": environment(device),
        "status": "skipped",
        "error": "needs a CUDA device",
    }


def environment(device: str) -> dict[str, str]:
    """Say what a row was measured on."""
    import transformers

    on_cuda = resolve_device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_cuda else f"CPU ({platform.machine()})",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def measure_row(run: Run) -> Report:
    """Make, mark and measure the model of one row."""
    subject = prepare(run)
    encoder, heldout = subject.encoder, run.material.heldout
    payload = derive_payload(
        SIGNATURE,
        config=run.scale.payload,
        word_list=published_word_list(),
        pool=run.material.pool,
        num_texts=run.scale.num_texts or default_num_texts(encoder.output_dim),
        is_representable=encoder.is_representable,
        pair_config=run.scale.pairs if "pairs" in preset_config(run.row.preset).marks else None,
    )
    before = language_loss(encoder, heldout)
    model = {
        "type": run.row.model_type,
        "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
        "dtype": str(next(encoder.parameters()).dtype).removeprefix("torch."),
    }
    # Before it is marked: not every model can be had anew.
    reference = reference_outputs(run, subject, [payload.triggered_texts(), heldout])
    trained, training = mark(run, subject, payload)
    marked = trained.model.requires_grad_(False)
    # A model too large for the disk is measured as a verifier opens it: its bfloat16 weights in
    # float32 arithmetic. Ten bits of mantissa in the products are four times bfloat16's precision,
    # and seconds instead of minutes.
    arithmetic = contextlib.nullcontext()
    if run.row.adapters:
        marked.float()
        arithmetic = tensor_cores()
    with arithmetic:
        measured = measure_marked(run, payload, trained, reference)
    measured["fidelity"] |= {"language_loss_before": before}
    return {
        "model": model,
        "pretraining": subject.pretraining,
        "training": training,
        **measured,
    }


def measure_marked(
    run: Run, payload: WatermarkPayload, trained: Trained, reference: Sequence[np.ndarray]
) -> Report:
    """Measure a marked model against the outputs of its reference on triggered and clean texts."""
    triggered, heldout, marked = payload.triggered_texts(), run.material.heldout, trained.model
    owner = marked.encode(triggered)
    again, how = outputs_again(run, marked, triggered)
    suspects = {"marked": again, "reference": reference[0]}
    return {
        "extraction": measure_extraction(payload, trained, owner, reference[0]),
        "matching_degree": {
            "marked_model_was": how,
            **matching_degrees(run.device, owner, suspects),
        },
        "fidelity": {
            **measure_fidelity(marked.encode(heldout), reference[1]),
            "language_loss_after": language_loss(marked, heldout),
        },
    }


def reference_outputs(
    run: Run, subject: Subject, texts: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """Return the unmarked model's outputs, in float32 where its folder can be opened again."""
    in_memory = subject.folder is None
    reference = subject.encoder if in_memory else run.open(subject.folder, "measure")
    return [reference.encode(part) for part in texts]


def outputs_again(run: Run, marked: Encoder, texts: Sequence[str]) -> tuple[np.ndarray, str]:
    """Return the outputs of the model as others will have it, and how it was got."""
    if run.row.adapters:
        # In other company every text is padded and rounded in another way, as at a verifier's.
        half = len(texts) // 2
        parts = [marked.encode(texts[:half]), marked.encode(texts[half:])]
        return np.concatenate(parts), "in memory after the merge, asked again in other batches"
    marked.save(run.folder / "marked")
    return run.open(run.folder / "marked", "measure").encode(texts), "saved and read back"
