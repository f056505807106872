"""How fast is the embedding engine? Against the published way, plain training and the hardware.

    python benchmarks/speed.py --tokenizer DIR --json OUT [--corpus FILE] [--batch-size 256] …

At the BERT-base shape with random weights and its language-model head, on one GPU, in one process:

- the loop of ``reference_loop.py``, written from the paper's text, and the same with the gradient
  that the authors' code sends through the model for nothing;
- the engine: a step of ``nsmark embed``, tokenising ahead, outputs of the reference kept for texts
  that come round again;
- plain language-model training of the same model through the same engine, on the same clean texts
  and as many triggered copies: what watermarking costs more than that;
- the bf16 matrix ceiling, against which the engine's useful operations are held: real tokens only,
  the head only where a token is predicted.

Rounds of the loops alternate, so that a slow spell of the machine hits all. DIR is a folder
with a BERT tokenizer. Without --corpus the texts are made of uncommon words, and all have full
length; with it they are a real corpus, with padding as it comes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from ceiling import bf16_ceiling, bf16_sustained, transformer_flops
from nsmark.embedding.batches import BatchOrder
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.inputs import Piece
from nsmark.embedding.trainer import Trainer
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder
from nsmark.payload import PayloadConfig, derive_payload, published_word_list, read_texts
from reference_loop import ReferenceLoop, synchronised_clock

SIGNATURE = hashlib.sha512(b"speed").digest()
BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


@dataclass(frozen=True)
class Round:
    """One round of one loop."""

    samples: int
    seconds: float
    flops: float = 0.0

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds


# --- what is trained -------------------------------------------------------------------------


def save_model(tokenizer: Any, shape: dict[str, int], folder: Path) -> Path:
    """Save a BERT of a shape with random weights and a head."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), **shape)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def full_texts(count: int) -> list[str]:
    """Return texts of 64 uncommon words, more than 128 tokens each."""
    words, rng = published_word_list().words, np.random.default_rng(0)
    return [" ".join(rng.choice(words, size=64)) for _ in range(count)]


def make_trainer(
    folder: Path, texts: Sequence[str], arguments: argparse.Namespace, device: torch.device
) -> Trainer:
    """Return the engine, ready to train."""
    model = open_encoder(folder, purpose="train", device=str(device), max_length=128)
    payload = derive_payload(
        SIGNATURE,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=full_texts(1600),
        num_texts=1500,
        is_representable=model.is_representable,
    )
    config = EmbeddingConfig(
        batch_size=arguments.batch_size,
        num_heldout_texts=64,
        precision=arguments.precision,
        compile=arguments.compile,
    )
    return Trainer(model, payload, texts, config)


# --- counting --------------------------------------------------------------------------------


def forward_flops(model: Encoder, lengths: Sequence[int], predicted: int = 0) -> float:
    """Return the operations of a forward pass over texts of these lengths."""
    config = model.network.config
    shape = (config.num_hidden_layers, config.hidden_size, config.intermediate_size)
    total = sum(transformer_flops(*shape, length) for length in lengths)
    if predicted:
        total += transformer_flops(
            0, config.hidden_size, 0, 1, 0, vocabulary=config.vocab_size, predicted=predicted
        )
    return float(total)


def step_flops(trainer: Trainer, piece: Piece, num_missing: int) -> float:
    """Return the useful operations of a step: model forward and backward, reference forward.

    Args:
        trainer: The engine.
        piece: What the step computes on.
        num_missing: Clean texts whose reference outputs were not yet known.
    """
    lengths = piece.tokens.attention_mask.sum(dim=1).tolist()
    predicted = 0 if piece.language is None else len(piece.language.labels)
    triggered = lengths[piece.num_clean : piece.num_clean + piece.num_triggered]
    triggered = triggered[:: trainer.passes.reference_every]
    reference = lengths[:num_missing] + triggered
    model = trainer.model
    return 3 * forward_flops(model, lengths, predicted) + forward_flops(model, reference)


# --- the loops -------------------------------------------------------------------------


def engine_rounds(trainer: Trainer) -> Callable[[int], Round]:
    """Return a function that takes so many steps of the engine."""
    order = BatchOrder(trainer.inputs.tokens.lengths, trainer.config.batch_size, 0)
    done, inputs = 0, trainer.inputs.make(1, order.batch(1))

    def run(steps: int) -> Round:
        nonlocal done, inputs
        pieces: list[tuple[Piece, int]] = []
        start = synchronised_clock(trainer.device)
        for _ in range(steps):
            done += 1
            piece = inputs.pieces[0]
            pieces.append((piece, len(trainer.kept.missing(piece.clean))))
            pending = trainer.take_step(inputs)
            inputs = trainer.inputs.make(done + 1, order.batch(done + 1))
            pending.read()
        seconds = synchronised_clock(trainer.device) - start
        flops = sum(step_flops(trainer, *piece) for piece in pieces)
        return Round(steps * trainer.config.batch_size, seconds, flops)

    return run


def plain_rounds(trainer: Trainer) -> Callable[[int], Round]:
    """Return a function that takes so many steps of plain training on the same texts.

    The same player computes, so precision, compilation and optimiser are the same. Clean texts and
    triggered copies are all masked and predicted in.
    """
    order = BatchOrder(trainer.inputs.tokens.lengths, trainer.config.batch_size, 0)
    player, device, done = trainer.player, trainer.device, 0
    inputs = plain_inputs(trainer, 1, order.batch(1))

    def run(steps: int) -> Round:
        nonlocal done, inputs
        start = synchronised_clock(device)
        for _ in range(steps):
            done += 1
            tokens, language = (part.to(device) for part in inputs)
            player.clear_gradients()
            _, total = player.outputs(tokens, language)
            player.backward([(total, torch.full((), 1 / len(language.labels), device=device))])
            player.update()
            inputs = plain_inputs(trainer, done + 1, order.batch(done + 1))
            total.item()  # the loss is looked at, as in the engine
        return Round(steps * trainer.config.batch_size, synchronised_clock(device) - start)

    return run


def plain_inputs(trainer: Trainer, step: int, numbers: Sequence[int]) -> Any:
    """Return a batch in which every row, clean or triggered, is masked and predicted in."""
    maker, task, rng = trainer.inputs, trainer.model.task, np.random.default_rng(step)
    where = rng.random((len(numbers), trainer.payload.config.copies + 1))
    texts = [maker.tokens[number] for number in numbers] + maker._triggered(numbers, where)
    draws = task.draws(rng, len(texts), trainer.model.max_length)
    return task.batch([], [task.pose(ids, own) for ids, own in zip(texts, draws, strict=True)])


def reference_rounds(
    loop: ReferenceLoop, texts: Sequence[str], batch_size: int = 4
) -> Callable[[int], Round]:
    """Return a function that takes so many steps of the published way."""
    done = 0

    def run(steps: int) -> Round:
        nonlocal done
        start = synchronised_clock(loop.device)
        for _ in range(steps):
            first = done * batch_size % (len(texts) - batch_size)
            loop.step(texts[first : first + batch_size])
            done += 1
        return Round(steps * batch_size, synchronised_clock(loop.device) - start)

    return run


# --- together --------------------------------------------------------------------------------


def summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Return median and spread of the rate."""
    rates = [each.rate for each in rounds]
    return {
        "samples_per_second": round(statistics.median(rates), 2),
        "slowest": round(min(rates), 2),
        "fastest": round(max(rates), 2),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all loops in turn and compare them."""
    from transformers import AutoTokenizer, BertConfig

    device = torch.device(arguments.device)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer, local_files_only=True)
    shape = TINY if arguments.tiny else BASE
    texts = full_texts(arguments.num_texts)
    if arguments.corpus:
        texts = [text for text in read_texts(arguments.corpus) if len(text.split()) >= 8]
    with tempfile.TemporaryDirectory() as folder:
        model_folder = save_model(tokenizer, shape, Path(folder) / "model")
        trainer = make_trainer(model_folder, texts, arguments, device)
    trainer.plan_memory()
    if arguments.compile:
        trainer.player.compile()
    loops: dict[str, tuple[Callable[[int], Round], int]] = {
        "engine": (engine_rounds(trainer), arguments.steps),
        "plain": (plain_rounds(trainer), arguments.steps),
    }
    if not arguments.skip_reference:
        for name in ("from_paper", "as_published"):
            loop = ReferenceLoop(
                BertConfig(vocab_size=len(tokenizer), **shape),
                tokenizer,
                trainer.payload.trigger,
                trainer.payload,
                device,
                leaking=name == "as_published",
            )
            loops[name] = (reference_rounds(loop, texts), arguments.reference_steps)
    started = time.perf_counter()
    for run, steps in loops.values():
        run(max(3, steps // 2))  # compiles, fills caches
    # Round the corpus until nearly all of the reference's clean outputs are known.
    loops["engine"][0](6 * trainer.num_train // trainer.config.batch_size)
    warm_seconds = time.perf_counter() - started
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    rounds: dict[str, list[Round]] = {name: [] for name in loops}
    for _ in range(arguments.rounds):
        for name, (run, steps) in loops.items():
            rounds[name].append(run(steps))
    document: dict[str, Any] = {
        "shape": shape,
        "batch_size": arguments.batch_size,
        "compile": arguments.compile,
        "precision": str(trainer.player.precision),
        "texts": "corpus" if arguments.corpus else "full length",
        "plan": {"pieces": trainer.plan.pieces, "recompute": trainer.plan.recompute},
        "warm_up_seconds": round(warm_seconds, 1),
        **{name: summary(found) for name, found in rounds.items()},
    }
    return document | ratios(rounds, device)


def ratios(rounds: dict[str, list[Round]], device: torch.device) -> dict[str, Any]:
    """Return the comparisons that the benchmark is for."""
    rate = {name: statistics.median(r.rate for r in found) for name, found in rounds.items()}
    tflops = statistics.median(r.flops / r.seconds for r in rounds["engine"]) / 1e12
    found: dict[str, Any] = {
        "engine_tflops": round(tflops, 1),
        "cost_over_plain_training": round(rate["plain"] / rate["engine"], 3),
    }
    for name in ("from_paper", "as_published"):
        if name in rate:
            found[f"times_{name}"] = round(rate["engine"] / rate[name], 1)
    if device.type == "cuda":
        ceiling, sustained = bf16_ceiling(str(device)), bf16_sustained(str(device))
        found |= {
            "device": torch.cuda.get_device_name(device),
            "peak_memory_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2),
            "bf16_ceiling_tflops": round(ceiling, 1),
            "bf16_sustained_tflops": round(sustained, 1),
            "share_of_ceiling": round(tflops / ceiling, 3),
            "share_of_sustained": round(tflops / sustained, 3),
        }
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--corpus")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--num-texts", type=int, default=2624)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--reference-steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--skip-reference", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a model of two layers, to try it out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args(words)
    document = measure(arguments)
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
