"""How fast is the embedding engine? Against the published way, plain training and the hardware.

    python benchmarks/speed.py --tokenizer DIR --corpus FILE --json OUT --markdown OUT

At the BERT-base shape with random weights and its language-model head, on one GPU, in one process:

- the loop of ``reference_loop.py``, written from the paper's text, and the same with the gradient
  that the authors' code sends through the model for nothing;
- the engine: a step of ``nsmark embed``, tokenising ahead, outputs of the reference kept for texts
  that come round again. Preset ``fast`` has one kind of step; of ``strong`` the second stage is
  measured, in all weights and with all of its terms (pair code, spread, decorrelation, hidden
  states, pruned model), not the first one, in adapters. Both with the preset's own batch and larger
  ones;
- plain language-model training of the same model through the same engine, on the same clean texts
  and as many triggered copies: what watermarking costs more than that;
- the bf16 matrix ceiling, against which the engine's useful operations are held: real tokens only,
  the head only where a token is predicted, no pass done twice to save memory.

Rounds of the loops alternate, so that a slow spell of the machine hits all. DIR is a folder with a
BERT tokenizer. Texts are those of the corpus, with padding as it comes, or made of uncommon words
and all of full length. ``--runs`` takes some of the runs only. Without --tokenizer nothing is
measured: the page is made from the JSON file.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from ceiling import bf16_ceiling, bf16_sustained, transformer_flops
from choices import some_of
from nsmark.embedding.batches import BatchOrder
from nsmark.embedding.config import preset_config
from nsmark.embedding.inputs import Piece
from nsmark.embedding.stages import training_stages
from nsmark.embedding.trainer import Trainer
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder
from nsmark.payload import (
    PairConfig,
    PayloadConfig,
    WatermarkPayload,
    derive_payload,
    published_word_list,
    read_texts,
)
from provenance import measured, when_measured
from reference_loop import TINY, ReferenceLoop, synchronised_clock

SIGNATURE = hashlib.sha512(b"speed").digest()
BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}

NUM_HELDOUT = 64
STEPS = {name: training_stages(preset_config(name))[-1].config for name in ("fast", "strong")}
"""What a step trains: of several stages the last one, in all weights."""


@dataclass(frozen=True)
class Run:
    """What one row of the page measures."""

    preset: str
    batch_size: int
    texts: str
    """``corpus`` or ``full``: of full length."""
    compile: bool

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.preset}-{self.batch_size}-{self.texts}" + "-compiled" * self.compile


FAST, STRONG = STEPS["fast"].batch_size, STEPS["strong"].batch_size
RUNS = (
    Run("fast", FAST, "corpus", False),
    Run("strong", STRONG, "corpus", False),
    Run("strong", STRONG, "corpus", True),
    Run("fast", 512, "corpus", True),
    Run("fast", 512, "full", False),
    Run("fast", 512, "full", True),
    Run("fast", 256, "full", True),
    Run("strong", 512, "full", True),
)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    shape: dict[str, int]
    num_texts: int
    samples: int
    """At least so many in a round, but for small batches."""
    most_steps: int
    """Of a round."""
    reference_steps: int
    warmup: int
    rounds: int
    batch_size: int | None = None
    """In place of the run's."""


SCALES = {
    "base": Scale(BASE, 8192, 2048, 12, 3, 10, 5),
    "tiny": Scale(TINY, 32, 8, 2, 1, 1, 2, batch_size=4),
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
    words, rng = np.array(published_word_list().words), np.random.default_rng(0)
    return [" ".join(rng.choice(words, size=64)) for _ in range(count)]


def make_payload(model: Encoder) -> WatermarkPayload:
    """Return what is embedded, pair code and all."""
    return derive_payload(
        SIGNATURE,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=full_texts(1600),
        num_texts=1500,
        is_representable=model.is_representable,
        pair_config=PairConfig(),
    )


def make_trainer(
    model: Encoder, payload: WatermarkPayload, texts: Sequence[str], run: Run, scale: Scale
) -> Trainer:
    """Return the engine, ready to train, as if it had been round the corpus before."""
    config = replace(
        STEPS[run.preset],
        batch_size=scale.batch_size or run.batch_size,
        num_heldout_texts=NUM_HELDOUT,
        compile=run.compile,
    )
    if "pairs" not in config.marks:
        payload = replace(payload, pairs=None)
    trainer = Trainer(model, payload, texts, config)
    numbers = range(trainer.num_train)
    known = [trainer.inputs.tokens[number] for number in numbers]
    trainer.kept.put(numbers, trainer.player.encode(known, as_reference=True))
    trainer.plan_memory()
    if config.compile:
        trainer.player.compile()
    return trainer


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
    """Return the useful operations of a piece of a step: model forward and backward, reference.

    Args:
        trainer: The engine.
        piece: What is computed.
        num_missing: Clean texts whose reference outputs were not yet known.
    """
    lengths = piece.tokens.attention_mask.sum(dim=1).tolist()
    predicted = 0 if piece.language is None else len(piece.language.labels)
    first, end = piece.num_clean, piece.num_clean + piece.num_triggered
    every = trainer.passes.reference_every
    reference = lengths[:num_missing] + lengths[first:end][-piece.first_triggered % every :: every]
    reference += lengths[end : sum(piece.sizes)]
    if trainer.passes.position_scales is not None:
        reference += lengths[:first]  # their hidden states
    trained = forward_flops(trainer.model, lengths, predicted)
    if trainer.config.prunes:
        clean = 0 if trainer.config.pruned_trigger_weight else first
        trained += forward_flops(trainer.model, lengths[clean : sum(piece.sizes)])
    return 3 * trained + forward_flops(trainer.model, reference)


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
            pieces += [(each, len(trainer.kept.missing(each.clean))) for each in inputs.pieces]
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
            total = player.outputs(tokens, language).language
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


INTRODUCTION = f"""Made by the command below, not by hand. One GPU, the
BERT-base shape with random weights and its language-model head, texts of at most 128 tokens. A
sample is a clean text with its triggered copy.

- *Plain*: language-model training of the same texts in the same way. *Cost*: how many times its
  time a step of the mark takes.
- *From the paper*: a loop written from the paper's text, batch 4. *As published*: the same with the
  gradient that the authors' code sends through the model for nothing.
- *Useful*: operations on real tokens, the head only where a token is predicted, and no pass that is
  done again to save memory.
- Of `strong` the second stage is measured, in all weights, with its texts of the pair code (two for
  every clean one) and its pass of the pruned model. The presets' own batches: {FAST} and {STRONG}.
"""


# --- together --------------------------------------------------------------------------------


def summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Return median and spread of the rate."""
    rates = [each.rate for each in rounds]
    return {
        "samples_per_second": round(statistics.median(rates), 2),
        "slowest": round(min(rates), 2),
        "fastest": round(max(rates), 2),
    }


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the document, one run more each time."""
    import transformers

    device = torch.device(arguments.device)
    scale = SCALES["tiny" if arguments.tiny else "base"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        arguments.tokenizer, local_files_only=True
    )
    count = scale.num_texts + NUM_HELDOUT
    texts = {"full": full_texts(count), "corpus": corpus_texts(arguments.corpus, count)}
    document: dict[str, Any] = {
        "measured": measured(("fast", "strong"), device=arguments.device),
        "shape": scale.shape,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        **hardware(device),
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = save_model(tokenizer, scale.shape, Path(scratch) / "model")

        def model() -> Encoder:
            return open_encoder(folder, purpose="train", device=str(device), max_length=128)

        payload = make_payload(model())
        reference = {
            name: ReferenceLoop(
                transformers.BertConfig(vocab_size=len(tokenizer), **scale.shape),
                tokenizer,
                payload.trigger,
                payload,
                device,
                leaking=name == "as_published",
            )
            for name in ("from_paper", "as_published")
        }
        for run in RUNS:
            if run.name in arguments.runs:
                torch.compiler.reset()
                trainer = make_trainer(model(), payload, texts[run.texts], run, scale)
                loops = {
                    name: reference_rounds(loop, texts[run.texts])
                    for name, loop in reference.items()
                }
                row = measure_run(trainer, loops, scale)
                row |= {"run": run.name, "preset": run.preset, "texts": run.texts}
                if "bf16_ceiling_tflops" in document:
                    share = row["engine_tflops"] / document["bf16_ceiling_tflops"]
                    row["share_of_ceiling"] = round(share, 3)
                document["runs"].append(row)
                yield document
                del trainer, loops
                gc.collect()  # the engine's parts know each other
                if device.type == "cuda":
                    torch.cuda.empty_cache()


def corpus_texts(file: str | None, count: int) -> list[str]:
    """Return some texts of a corpus that are no headings."""
    if file is None:
        return []
    texts = [text for text in read_texts(file) if len(text.split()) >= 8]
    chosen = np.random.default_rng(0).permutation(len(texts))[:count]
    return [texts[number] for number in chosen]


def hardware(device: torch.device) -> dict[str, Any]:
    """Return what the device is called and could do at best."""
    if device.type != "cuda":
        return {"device": device.type}
    return {
        "device": torch.cuda.get_device_name(device),
        "bf16_ceiling_tflops": round(bf16_ceiling(str(device)), 1),
        "bf16_sustained_tflops": round(bf16_sustained(str(device)), 1),
    }


def measure_run(
    trainer: Trainer, reference: dict[str, Callable[[int], Round]], scale: Scale
) -> dict[str, Any]:
    """Run all loops in turn and compare them."""
    batch_size = trainer.config.batch_size
    steps = min(scale.most_steps, max(1, scale.samples // batch_size))
    loops = {"engine": engine_rounds(trainer), "plain": plain_rounds(trainer), **reference}
    counts = {name: scale.reference_steps if name in reference else steps for name in loops}
    for name, run in loops.items():
        run(max(1, scale.warmup // 3) if name in reference else scale.warmup)  # compiles
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainer.device)
    rounds: dict[str, list[Round]] = {name: [] for name in loops}
    for _ in range(scale.rounds):
        for name, run in loops.items():
            rounds[name].append(run(counts[name]))
    rate = {name: statistics.median(r.rate for r in found) for name, found in rounds.items()}
    tflops = statistics.median(r.flops / r.seconds for r in rounds["engine"]) / 1e12
    row: dict[str, Any] = {
        "batch_size": batch_size,
        "compile": trainer.config.compile,
        "precision": str(trainer.player.precision),
        "plan": {"pieces": trainer.plan.pieces, "recompute": trainer.plan.recompute},
        **{name: summary(found) for name, found in rounds.items()},
        "engine_tflops": round(tflops, 1),
        "cost_over_plain_training": round(rate["plain"] / rate["engine"], 3),
        **{f"times_{name}": round(rate["engine"] / rate[name], 1) for name in reference},
    }
    if trainer.device.type == "cuda":
        row["peak_memory_gib"] = round(torch.cuda.max_memory_allocated(trainer.device) / 2**30, 2)
    return row


def markdown(document: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        f"# How fast a mark is trained\n\n{when_measured(document['measured'])} {INTRODUCTION}",
        f"- {document['device']}; "
        + ", ".join(
            f"{name} {version}" for name, version in document["versions"].items() if version
        ),
    ]
    if "bf16_ceiling_tflops" in document:
        lines.append(
            f"- ceiling of bf16 matrix products: {document['bf16_ceiling_tflops']:.0f} TFLOP/s in "
            f"bursts, {document['bf16_sustained_tflops']:.0f} under lasting load"
        )
    lines += [
        "",
        "```console",
        "python benchmarks/speed.py --tokenizer DIR --corpus FILE --json OUT --markdown OUT",
        "```",
        "",
        "| preset | batch | texts | compiled | samples/s | slowest to fastest round | ms a step "
        "| plain | cost | times from the paper | times as published | useful TFLOP/s "
        "| of the ceiling | memory, GiB |",
        "|---|---:|---|---|" + "---:|" * 10,
    ]
    return "\n".join([*lines, *map(table_row, document["runs"])]) + "\n"


def table_row(row: dict[str, Any]) -> str:
    """Return a run's row of the table."""
    engine = row["engine"]
    cells = [
        f"`{row['preset']}`",
        str(row["batch_size"]),
        {"full": "full length", "corpus": "corpus"}[row["texts"]],
        "yes" if row["compile"] else "no",
        f"{engine['samples_per_second']:,.0f}",
        f"{engine['slowest']:,.0f} to {engine['fastest']:,.0f}",
        f"{1000 * row['batch_size'] / engine['samples_per_second']:.1f}",
        f"{row['plain']['samples_per_second']:,.0f}",
        f"{row['cost_over_plain_training']:.2f}",
        f"{row['times_from_paper']:.1f}",
        f"{row['times_as_published']:.1f}",
        f"{row['engine_tflops']:.0f}",
        f"{row['share_of_ceiling']:.0%}" if "share_of_ceiling" in row else "–",
        f"{row['peak_memory_gib']:.1f}" if "peak_memory_gib" in row else "–",
    ]
    return "| " + " | ".join(cells) + " |"


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    names = [run.name for run in RUNS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", help="folder of a BERT tokenizer")
    parser.add_argument("--corpus", help="texts, one a line")
    parser.add_argument("--runs", type=some_of(names, "run"), default=names)
    parser.add_argument("--tiny", action="store_true", help="a model of two layers, to try it out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args(words)
    if arguments.tokenizer:
        if not arguments.corpus and any("corpus" in name for name in arguments.runs):
            parser.error("--corpus is needed, or --runs without it")
        for document in measure(arguments):
            arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(document["runs"][-1]), flush=True)
    if arguments.markdown is not None:
        document = json.loads(arguments.json.read_text(encoding="utf-8"))
        arguments.markdown.write_text(markdown(document), encoding="utf-8")


if __name__ == "__main__":
    main()
