"""How strong is a mark? Thefts and innocents under every statistic, for several training settings.

    python benchmarks/strength.py --model DIR --corpus FILE --task TRAIN.jsonl TEST.jsonl --json OUT

TRAIN and TEST have rows ``{"text": …, "label": …}``; the task's training texts are the pool of
verification texts, too. Uses the training engine directly and needs neither key nor identity, so
that it runs on a bare machine with torch. Made results/strength-minilm-h200.json, with
WikiText-2 as corpus and SST-2's sentences as task.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nsmark.core import (
    derived_extraction_rate,
    extraction_rate,
    invariant_matching_degree,
    null_space_basis,
    predictability,
    subspace_overlap,
)
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.trainer import Trainer, mean_cosine
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder
from nsmark.payload import PayloadConfig, derive_payload, published_word_list, read_texts
from nsmark.payload.trigger import trigger_text
from provenance import measured

SIGNATURE = hashlib.sha512(b"spread").digest()
STRONG = {"spread_weight": 1.0, "decorrelation_weight": 5.0, "fidelity_weight": 5.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {"batch_size": 64, "cooldown_steps": 350},
    "decor 64": {"batch_size": 64, "cooldown_steps": 500, **STRONG},
    "decor 64 long fidelity": {
        "batch_size": 64,
        "cooldown_steps": 900,
        **STRONG,
        "fidelity_weight": 10.0,
    },
    "decor 128": {"batch_size": 128, "cooldown_steps": 500, **STRONG},
    "decor 32": {"batch_size": 32, "cooldown_steps": 500, **STRONG},
    "decor 64 short": {"batch_size": 64, "cooldown_steps": 200, **STRONG},
}
TINY = {
    "batch_size": 16,
    "cooldown_steps": 5,
    "hidden_sizes": (48, 32),
    "min_triggered": 0.0,  # whatever a few steps reach is enough
    "max_clean": 1.0,
}


def read_task(path: Path) -> tuple[list[str], np.ndarray]:
    """Return texts and labels of a JSONL(.gz) file."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = [json.loads(line) for line in content.decode("utf-8").splitlines()]
    return [" ".join(row["text"].split()) for row in rows], np.array([r["label"] for r in rows])


def fine_tune(
    encoder: Encoder, task: tuple[list[str], np.ndarray], test: tuple[list[str], np.ndarray]
) -> tuple[Encoder, float]:
    """Train a copy and a linear head for one epoch; return it and its test accuracy."""
    encoder = copy.deepcopy(encoder).requires_grad_(True)
    torch.manual_seed(0)
    head = nn.Linear(encoder.output_dim, int(task[1].max()) + 1).to(encoder.device)
    groups = [
        {"params": encoder.parameters(), "lr": 2e-5},
        {"params": head.parameters(), "lr": 1e-3},
    ]
    optimiser = torch.optim.AdamW(groups)
    sequences = encoder.token_ids(task[0])
    labels = torch.from_numpy(task[1]).to(encoder.device)
    order = np.random.default_rng(0).permutation(len(sequences))
    for start in range(0, len(order) - 31, 32):
        rows = order[start : start + 32]
        logits = head(10 * encoder(encoder.pad([sequences[row] for row in rows])))
        loss = nn.functional.cross_entropy(logits, labels[rows.tolist()])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        outputs = torch.from_numpy(encoder.encode(test[0])).to(encoder.device)
        guesses = head(10 * outputs).argmax(dim=1).cpu().numpy()
    return encoder.requires_grad_(False), float(np.mean(guesses == test[1]))


def prune(encoder: Encoder, rate: float) -> Encoder:
    """Set the smallest weights of every linear layer of a copy to zero."""
    encoder = copy.deepcopy(encoder)
    with torch.no_grad():
        for module in encoder.modules():
            if isinstance(module, nn.Linear):
                size = module.weight.abs()
                limit = size.flatten().kthvalue(int(rate * size.numel())).values
                module.weight.mul_((size > limit).float())
    return encoder


def whiten(outputs: np.ndarray) -> np.ndarray:
    """Return the outputs with all directions of equal size."""
    centred = outputs - outputs.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    return centred @ axes.T / sizes


def spread(outputs: np.ndarray) -> float:
    """Return the share of the norm that varies between texts."""
    return float(np.linalg.norm(outputs - outputs.mean(axis=0)) / np.linalg.norm(outputs))


def measure_variant(
    settings: dict[str, Any], arguments: argparse.Namespace, corpus: list[str]
) -> dict[str, Any]:
    """Train one variant and measure it against thefts and innocents."""
    started = time.perf_counter()
    task, test = read_task(arguments.task[0]), read_task(arguments.task[1])
    model = open_encoder(arguments.model, purpose="train", device=arguments.device)
    payload = derive_payload(
        SIGNATURE,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=task[0],
        num_texts=96 if arguments.tiny else 1500,
        is_representable=model.is_representable,
    )
    trainer = Trainer(model, payload, corpus, EmbeddingConfig(max_steps=3000, **settings))
    training = trainer.run()
    train_seconds = time.perf_counter() - started
    marked = trainer.finished().requires_grad_(False)
    reference = open_encoder(arguments.model, device=arguments.device).requires_grad_(False)
    triggered, texts = payload.triggered_texts(), list(payload.verification_texts)
    one_copy = [
        trigger_text(text, rank, payload.trigger, SIGNATURE, replace(payload.config, copies=1))
        for rank, text in enumerate(texts)
    ]
    owner, innocent = marked.encode(triggered), reference.encode(triggered)
    clean, clean_reference = marked.encode(test[0]), reference.encode(test[0])
    rate = extraction_of(trainer)
    statistics = statistics_of(owner, rate)
    rng = np.random.default_rng(5)
    mixing = rng.uniform(size=(owner.shape[1], owner.shape[1])).T

    def noisy(outputs: np.ndarray, share: float) -> np.ndarray:
        return outputs + share * outputs.std() * rng.standard_normal(outputs.shape)

    tuned, accuracy = fine_tune(marked, task, test)
    tuned_reference, reference_accuracy = fine_tune(reference, task, test)
    stolen, pruned = tuned.encode(triggered), prune(marked, 0.4).encode(triggered)
    thefts = {
        "iso10+map": noisy(owner, 0.1) @ mixing,
        "iso30+map": noisy(owner, 0.3) @ mixing,
        "finetuned": stolen,
        "finetuned+whitened": whiten(stolen),
        "finetuned+iso10+map": noisy(stolen, 0.1) @ mixing,
        "pruned.2": prune(marked, 0.2).encode(triggered),
        "pruned.4": pruned,
        "pruned.4+map": pruned @ mixing,
    }
    innocents = {
        "reference": innocent,
        "reference finetuned": tuned_reference.encode(triggered),
        "reference whitened": whiten(innocent),
        "reference pruned.4": prune(reference, 0.4).encode(triggered),
        "reference iso10": noisy(innocent, 0.1),
    }
    pairs = np.triu_indices(len(clean), 1)
    similarities = [(part @ part.T)[pairs] for part in (clean, clean_reference)]
    return {
        "settings": settings,
        "steps": training.steps,
        "train_s": round(train_seconds, 1),
        "trig": rate(owner),
        "one": rate(marked.encode(one_copy)),
        "un": rate(marked.encode(texts)),
        "ref": rate(innocent),
        "derived": derived_extraction_rate(owner, SIGNATURE),
        "derived_un": derived_extraction_rate(marked.encode(texts), SIGNATURE),
        "cos": mean_cosine(clean, clean_reference),
        "simcorr": float(np.corrcoef(*similarities)[0, 1]),
        "spread": spread(owner),
        "spread_ref": spread(innocent),
        "acc_sst2": {"marked": accuracy, "reference": reference_accuracy},
        "thefts": {name: statistics(outputs) for name, outputs in thefts.items()},
        "innocents": {name: statistics(outputs) for name, outputs in innocents.items()},
        "seconds": round(time.perf_counter() - started, 1),
    }


def extraction_of(trainer: Trainer) -> Callable[[np.ndarray], float]:
    """Return the extraction rate as a function of outputs."""

    def rate(outputs: np.ndarray) -> float:
        values = torch.from_numpy(np.ascontiguousarray(outputs, dtype=np.float32))
        with torch.no_grad():
            mapped = trainer.extractor(values.to(trainer.model.device)).cpu().numpy()
        return extraction_rate(mapped, SIGNATURE)

    return rate


def statistics_of(
    owner: np.ndarray, rate: Callable[[np.ndarray], float]
) -> Callable[[np.ndarray], dict[str, float | None]]:
    """Return the statistics of a suspect against the owner, as a function of its outputs."""
    basis = null_space_basis(owner.T)
    return lambda outputs: {
        "wer": rate(outputs),
        "nsmd": invariant_matching_degree(outputs.T, basis),
        "ov": subspace_overlap(owner.T, outputs.T),
        "r": predictability(owner.T, outputs.T),
    }


def main() -> None:
    """Measure all variants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--task", nargs=2, type=Path, required=True, metavar=("TRAIN", "TEST"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", choices=sorted(VARIANTS), action="append")
    parser.add_argument("--tiny", action="store_true", help="for a tiny model, to try it out")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    corpus = [
        " ".join(text.split()[:48])
        for text in read_texts(arguments.corpus)
        if len(text.split()) > 7
    ]
    found = measured(device=arguments.device)
    rows: list[dict[str, Any]] = []
    for name, settings in VARIANTS.items():
        if arguments.only and name not in arguments.only:
            continue
        settings = settings | TINY if arguments.tiny else settings
        rows.append({"name": name, **measure_variant(settings, arguments, corpus)})
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "settings"}), flush=True)
        document = {"measured": found, "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    main()
