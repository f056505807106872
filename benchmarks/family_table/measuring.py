"""What is measured on models and their outputs: extraction, matching degrees, fidelity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from family_table.report import Report
from family_table.seeds import SEED, SIGNATURE
from nsmark.core import (
    derived_extraction_rate,
    expected_matching_degree,
    extraction_rate,
    invariant_matching_degree,
    matching_degree,
    null_space_basis,
)
from nsmark.embedding.extractor import Extractor
from nsmark.embedding.stages import Trained
from nsmark.embedding.trainer import mean_cosine
from nsmark.models.encoder import Encoder
from nsmark.models.null_space import null_space_basis_on_device
from nsmark.payload.config import PayloadConfig
from nsmark.payload.payload import WatermarkPayload
from nsmark.payload.trigger import trigger_text

# One copy and no trigger are measured on the first so many verification texts: a rate needs no
# null space, and the largest models need 8,192 texts for theirs.
NUM_CONTROLS = 1500


def measure_extraction(
    payload: WatermarkPayload, trained: Trained, owner: np.ndarray, reference: np.ndarray
) -> Report:
    """Measure what can be read from the outputs, with the trigger and without."""
    num_bits, marked = payload.config.num_bits, trained.model
    one_copy = one_copy_texts(payload)[:NUM_CONTROLS]
    clean = list(payload.verification_texts[:NUM_CONTROLS])
    read = partial(read_rate, payload.config, trained.last.extractor)
    return {
        "triggered": read(owner),
        "one_copy": read(marked.encode(one_copy)),
        "untriggered": read(marked.encode(clean)),
        "reference": read(reference),
        "derived": derived_extraction_rate(owner, SIGNATURE, num_bits),
        "derived_reference": derived_extraction_rate(reference, SIGNATURE, num_bits),
    }


def one_copy_texts(payload: WatermarkPayload) -> list[str]:
    """Return the verification texts with a single copy of the trigger."""
    config = replace(payload.config, copies=1)
    return [
        trigger_text(text, index, payload.trigger, payload.signature, config)
        for index, text in enumerate(payload.verification_texts)
    ]


@torch.inference_mode()
def read_rate(config: PayloadConfig, extractor: Extractor, outputs: np.ndarray) -> float:
    """Return how much of the signature the trained extractor reads."""
    device = next(extractor.parameters()).device
    mapped = extractor(torch.from_numpy(outputs).to(device)).cpu().numpy()
    return extraction_rate(mapped, SIGNATURE, config.num_bits, config.spread_factor)


def matching_degrees(
    device: torch.device, owner: np.ndarray, suspects: dict[str, np.ndarray]
) -> Report:
    """Return the matching degrees of suspects with the null space of the owner's outputs."""
    if device.type == "cuda":
        basis = null_space_basis_on_device(owner.T, str(device))
    else:
        basis = null_space_basis(owner.T)
    num_texts, null_dim = basis.shape
    return {
        "num_texts": num_texts,
        "output_dim": owner.shape[1],
        "null_dim": null_dim,
        "chance": expected_matching_degree(num_texts, null_dim),
        **{
            name: {
                "invariant": invariant_matching_degree(outputs.T, basis),
                "paper": matching_degree(outputs.T, basis),
            }
            for name, outputs in suspects.items()
        },
    }


def measure_fidelity(clean: np.ndarray, reference: np.ndarray) -> Report:
    """Compare the marked model's clean outputs with the reference's."""
    pairs = np.triu_indices(len(clean), 1)
    similarities = [(part @ part.T)[pairs] for part in map(unit_rows, (clean, reference))]
    return {
        "cosine": mean_cosine(clean, reference),
        "similarity_correlation": float(np.corrcoef(*similarities)[0, 1]),
        # Where all outputs share a large part, cosines are near 1 whatever happens; this is not.
        "squared_distance_in_variances": float(
            np.mean((clean - reference) ** 2) / reference.var(axis=0).mean()
        ),
    }


def unit_rows(outputs: np.ndarray) -> np.ndarray:
    """Return the outputs at unit length, so that products are cosines."""
    return outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-30)


@torch.no_grad()
def language_loss(encoder: Encoder, texts: Sequence[str]) -> float | None:
    """Return the model's own loss on texts, with the same masks each time; None without a head."""
    if not encoder.has_lm_head:
        return None
    rng, sequences = np.random.default_rng(SEED), encoder.token_ids(texts)
    batches = [sequences[start : start + 32] for start in range(0, len(sequences), 32)]
    return float(np.mean([encoder.language_loss(batch, rng).item() for batch in batches]))
