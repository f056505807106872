"""Does a mark cost accuracy? The clean and the marked model, fine-tuned alike on five tasks.

    python benchmarks/fidelity.py --model DIR --corpus FILE --tasks DIR --json OUT

DIR of --tasks holds sst2, sst5, offenseval, lingspam and agnews, each with gzipped JSON lines
``{"text": …, "label": …}`` per split. Every seed gives one mark and one pair of fine-tunings per
task: same head, same batches, same dropout, so that the pair differs in the starting weights
alone. A ridge classifier on frozen outputs is the second view, without that training's noise.
Uses the training engine directly and needs neither key nor identity, so that it runs on a bare
machine with torch.

``--marked DIR`` compares a model that was marked elsewhere, with every seed's fine-tunings.
``--kept DIR`` keeps the clean model's accuracies, which no mark changes: ``--clean-only`` makes
them beforehand, while the mark is still being trained in another process.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fidelity_table.page import markdown, page
from fidelity_table.summary import merged, num_marks, summarise
from nsmark.core import extraction_rate
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.embedding.stages import Trained, train
from nsmark.embedding.trainer import mean_cosine
from nsmark.models.encoder import Encoder
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder
from nsmark.payload import (
    PairConfig,
    PayloadConfig,
    WatermarkPayload,
    derive_payload,
    published_word_list,
    read_texts,
    trigger_text,
)
from pair_table.reading import Table, read
from provenance import measured
from strength import read_task, spread

MODEL_RATE, HEAD_RATE = 2e-5, 1e-3
BATCH_SIZE, MAX_EPOCHS, MAX_STEPS, WARMUP_SHARE = 32, 3, 600, 0.1
RIDGE = 0.1
NUM_TEXTS = 1500
# --- tasks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Where a task's rows are, and how many of them are used."""

    train: tuple[str, ...] = ("train",)
    """Names of splits; the first that is there counts."""
    test: str = "test"
    max_train: int | None = None
    max_test: int | None = None


SOURCES = {
    # SST-2's dev set is the one everybody reports; whole sentences are a tenth of its phrases.
    "sst2": Source(train=("train_sentences", "train"), test="dev"),
    "sst5": Source(),
    "offenseval": Source(),
    "lingspam": Source(),
    "agnews": Source(max_train=6000, max_test=3000),
}
POOL = "sst2"


@dataclass(frozen=True, slots=True)
class Split:
    """Texts with their labels, tokenised and padded once for all models."""

    texts: list[str]
    labels: np.ndarray
    sequences: list[list[int]]
    order: list[int]
    """Rows by length, as they lie in the blocks."""
    blocks: list[Any]
    """Padded tokens on the device, for measuring."""


@dataclass(frozen=True, slots=True)
class Task:
    """One classification task."""

    name: str
    train: Split
    test: Split

    @property
    def num_labels(self) -> int:
        """Return how many labels there are, counted from 0."""
        return int(max(self.train.labels.max(), self.test.labels.max())) + 1

    @property
    def num_epochs(self) -> int:
        """Return as many passes as the budget of steps allows."""
        per_epoch = math.ceil(len(self.train.texts) / BATCH_SIZE)
        return max(1, min(MAX_EPOCHS, MAX_STEPS // per_epoch))


def load_task(folder: Path, name: str, encoder: Encoder, limit: int | None) -> Task:
    """Read and tokenise one task."""
    source = SOURCES[name]
    paths = [folder / name / f"{split}.jsonl.gz" for split in source.train]
    train = next((path for path in paths if path.exists()), paths[-1])
    test = folder / name / f"{source.test}.jsonl.gz"
    return Task(
        name,
        make_split(encoder, *sample(*read_task(train), source.max_train, limit)),
        make_split(encoder, *sample(*read_task(test), source.max_test, limit)),
    )


def sample(
    texts: list[str], labels: np.ndarray, *limits: int | None
) -> tuple[list[str], np.ndarray]:
    """Return at most so many rows, always the same ones; files may be sorted by label."""
    size = min([len(texts), *(limit for limit in limits if limit is not None)])
    rows = np.sort(np.random.default_rng(0).permutation(len(texts))[:size])
    return [texts[row] for row in rows], labels[rows]


def make_split(
    encoder: Encoder, texts: list[str], labels: np.ndarray, block_size: int = 256
) -> Split:
    """Tokenise, and pad rows of similar length together."""
    sequences = encoder.token_ids(texts)
    order = sorted(range(len(texts)), key=lambda row: len(sequences[row]))
    blocks = [
        encoder.pad([sequences[row] for row in order[start : start + block_size]])
        for start in range(0, len(order), block_size)
    ]
    return Split(texts, labels, sequences, order, blocks)


@torch.inference_mode()
def outputs_of(encoder: Encoder, split: Split) -> Tensor:
    """Return the outputs in the rows' order, on the device."""
    sorted_outputs = torch.cat([encoder(tokens).float() for tokens in split.blocks])
    outputs = torch.empty_like(sorted_outputs)
    outputs[torch.tensor(split.order, device=outputs.device)] = sorted_outputs
    return outputs


# --- paired fine-tuning --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a pair of fine-tunings has in common."""

    task: Task
    seed: int
    scale: float
    """Factor on outputs before the head; the clean model's entries then have size 1."""
    batches: list[tuple[Any, Tensor]]
    """Padded tokens and labels of every step, on the device."""


def make_plan(task: Task, encoder: Encoder, outputs: np.ndarray, seed: int) -> Plan:
    """Prepare the batches of all steps, so that training waits for nothing from the CPU.

    Args:
        task: What is trained.
        encoder: Pads; its weights do not matter.
        outputs: The clean model's on the training texts.
        seed: Of batches, head and dropout.
    """
    lengths = np.array([len(sequence) for sequence in task.train.sequences])
    labels = torch.from_numpy(task.train.labels.astype(np.int64)).to(encoder.device)
    batches = [
        (encoder.pad([task.train.sequences[row] for row in rows]), labels[rows])
        for rows in grouped_batches(lengths, task.num_epochs, seed)
    ]
    return Plan(task, seed, 1 / float(np.sqrt(np.mean(np.square(outputs)))), batches)


def grouped_batches(lengths: np.ndarray, num_epochs: int, seed: int) -> list[list[int]]:
    """Return the rows of every step: random, but of similar length within a batch."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(num_epochs):
        order = rng.permutation(len(lengths))
        # Sorted inside windows of 16 batches: most padding goes, and every epoch mixes anew.
        windows = np.split(order, range(16 * BATCH_SIZE, len(order), 16 * BATCH_SIZE))
        order = np.concatenate([part[np.argsort(lengths[part])] for part in windows])
        epoch = np.split(order, range(BATCH_SIZE, len(order), BATCH_SIZE))
        batches += [epoch[position].tolist() for position in rng.permutation(len(epoch))]
    return batches


def rate_factor(step: int, num_steps: int) -> float:
    """Return the linear rise and fall of the learning rates."""
    rise = max(1, round(WARMUP_SHARE * num_steps))
    return min((step + 1) / rise, (num_steps - step) / max(1, num_steps - rise))


def fine_tuned_accuracy(encoder: Encoder, plan: Plan) -> float:
    """Train a copy with a linear head; return the test accuracy."""
    # Seeds head and dropout: the other model of the pair draws the same.
    torch.manual_seed(plan.seed)
    encoder = copy.deepcopy(encoder).requires_grad_(True).train()
    device = encoder.device
    head = nn.Linear(encoder.output_dim, plan.task.num_labels).to(device)
    groups = [
        {"params": list(encoder.parameters()), "lr": MODEL_RATE},
        {"params": list(head.parameters()), "lr": HEAD_RATE},
    ]
    optimiser = torch.optim.AdamW(groups, fused=True)
    num_steps = len(plan.batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: rate_factor(step, num_steps)
    )
    for tokens, labels in plan.batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = encoder(tokens)
        loss = nn.functional.cross_entropy(head(plan.scale * outputs.float()), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.inference_mode():
        logits = head(plan.scale * outputs_of(encoder.eval(), plan.task.test))
    return accuracy(logits.cpu().numpy(), plan.task.test.labels)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose highest score is the label's."""
    return float(np.mean(scores.argmax(axis=1) == labels))


# --- frozen outputs ------------------------------------------------------------------------------


def probe_accuracy(train: np.ndarray, test: np.ndarray, task: Task) -> float:
    """Fit a ridge classifier to frozen outputs, in closed form; return the test accuracy."""
    mean = train.mean(axis=0, dtype=np.float64)
    centred, targets = train - mean, np.eye(task.num_labels)[task.train.labels]
    gram = centred.T @ centred
    # In units of the mean eigenvalue, so that no scale of the outputs is at an advantage.
    ridge = RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram + ridge, centred.T @ (targets - targets.mean(axis=0)))
    return accuracy((test - mean) @ weights + targets.mean(axis=0), task.test.labels)


def similarity_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Pearson's correlation of two models' cosines between all pairs of texts."""
    parts = [_centred_similarities(outputs) for outputs in (first, second)]
    sizes = [np.linalg.norm(part) for part in parts]
    return float(np.vdot(*parts) / (sizes[0] * sizes[1]))


def _centred_similarities(outputs: np.ndarray) -> np.ndarray:
    """Return the cosines less their mean, with zeros where a text meets itself."""
    values = outputs.astype(np.float64)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    similarities = values @ values.T
    np.fill_diagonal(similarities, 0)
    similarities -= similarities.sum() / (len(values) * (len(values) - 1))
    np.fill_diagonal(similarities, 0)
    return similarities


@dataclass(frozen=True, slots=True)
class Frozen:
    """One model's outputs on a task's clean texts."""

    train: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, encoder: Encoder, task: Task) -> Frozen:
        """Measure a model."""
        return cls(*(outputs_of(encoder, part).cpu().numpy() for part in (task.train, task.test)))


# --- the mark ------------------------------------------------------------------------------------


def embed_mark(
    clean: Encoder, corpus: list[str], pool: list[str], config: EmbeddingConfig
) -> tuple[Encoder, dict[str, Any]]:
    """Train a copy; return it and what can be read from it."""
    signature = hashlib.sha512(f"fidelity {config.seed}".encode()).digest()
    payload = derive_payload(
        signature,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=pool,
        num_texts=min(NUM_TEXTS, len(set(pool))),
        is_representable=clean.is_representable,
        pair_config=PairConfig() if "pairs" in config.marks else None,
    )
    trained = train(copy.deepcopy(clean), payload, corpus, config)
    marked = trained.model.requires_grad_(False).eval()
    measured = {
        "steps": [stage.steps for stage in trained.results],
        "seconds": round(sum(stage.seconds for stage in trained.results), 1),
    }
    rate = extraction_of(trained, payload.signature)
    return marked, measured | measure_mark(marked, clean, payload, rate)


def marked_model(
    arguments: argparse.Namespace, clean: Encoder, tasks: list[Task], config: EmbeddingConfig
) -> tuple[Encoder, dict[str, Any]]:
    """Return the marked model that was given, or train one; and what is known of its mark."""
    if arguments.marked is not None:
        return open_encoder(arguments.marked, purpose="train", device=arguments.device), {}
    corpus = [
        " ".join(text.split()[:48])
        for text in read_texts(arguments.corpus)
        if len(text.split()) > 7
    ]
    # SST-2's training texts are the pool of verification texts, too.
    pool = next(task.train.texts for task in tasks if task.name == POOL)
    return embed_mark(clean, corpus, pool, config)


def check_settings(found: dict[str, Any], config: EmbeddingConfig) -> None:
    """Refuse to tell of a mark under settings that it was not made with."""
    wanted, usual = (json.loads(json.dumps(asdict(each))) for each in (config, EmbeddingConfig()))
    del wanted["checkpoint_every"]  # changes no result
    found = {**usual, **found}  # settings that are newer than the mark
    other = [name for name, value in wanted.items() if found[name] != value]
    if other:
        raise SystemExit(
            f"the marked model was made with another {other[0]}: mark it anew, or run with "
            f"--set {other[0]}={json.dumps(found[other[0]])}"
        )


def extraction_of(trained: Trained, signature: bytes) -> Callable[[np.ndarray], float]:
    """Return the extraction rate as a function of outputs."""

    def rate(outputs: np.ndarray) -> float:
        with torch.inference_mode():
            values = torch.from_numpy(outputs).to(trained.model.device)
            mapped = trained.last.extractor(values).cpu().numpy()
        return extraction_rate(mapped, signature)

    return rate


def measure_mark(
    marked: Encoder,
    clean: Encoder,
    payload: WatermarkPayload,
    rate: Callable[[np.ndarray], float],
) -> dict[str, float]:
    """Return extraction rates and how much of triggered outputs varies from text to text."""
    texts, triggered = list(payload.verification_texts), payload.triggered_texts()
    single = replace(payload.config, copies=1)
    one_copy = [
        trigger_text(text, rank, payload.trigger, payload.signature, single)
        for rank, text in enumerate(texts)
    ]
    owner, innocent = marked.encode(triggered), clean.encode(triggered)
    return pair_rates(marked, clean, payload) | {
        "triggered": rate(owner),
        "one_copy": rate(marked.encode(one_copy)),
        "untriggered": rate(marked.encode(texts)),
        "reference": rate(innocent),
        "spread": spread(owner),
        "spread_reference": spread(innocent),
    }


def pair_rates(marked: Encoder, clean: Encoder, payload: WatermarkPayload) -> dict[str, float]:
    """Return the share of the table's signs that are read from either model, if there is one."""
    if payload.pairs is None:
        return {}
    table = Table(payload.pairs.pair_numbers(), payload.pairs.signs(payload.signature))
    texts = payload.pair_texts()
    return {
        "pairs": read(marked.encode(texts), table)["rate"],
        "pairs_reference": read(clean.encode(texts), table)["rate"],
    }


# --- one seed ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CleanSide:
    """The clean model: its outputs by task, and its accuracies after fine-tuning, where kept."""

    model: Encoder
    frozen: dict[str, Frozen]
    folder: Path | None = None

    @classmethod
    def of(cls, model: Encoder, tasks: list[Task], folder: Path | None = None) -> CleanSide:
        """Measure the model's outputs."""
        return cls(model, {task.name: Frozen.of(model, task) for task in tasks}, folder)

    def plan(self, task: Task, seed: int) -> Plan:
        """Return what both models' fine-tunings have in common."""
        return make_plan(task, self.model, self.frozen[task.name].train, seed)

    def accuracy(self, plan: Plan) -> float:
        """Return what was kept, or train and keep."""
        if self.folder is None:
            return fine_tuned_accuracy(self.model, plan)
        path = self.folder / f"{plan.task.name}-{plan.seed}-{self._digest(plan.task)}.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(fine_tuned_accuracy(self.model, plan)), encoding="utf-8")
            partial.replace(path)
        return float(json.loads(path.read_text(encoding="utf-8")))

    def _digest(self, task: Task) -> str:
        """Return a name for what an accuracy depends on, beside task and seed."""
        rows = [len(part.texts) for part in (task.train, task.test)]
        about = [model_digest(self.model.folder.path), rows, self.model.device.type]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]


def measure_seed(clean: CleanSide, marked: Encoder, tasks: list[Task], seed: int) -> dict[str, Any]:
    """Compare the models on every task.

    Args:
        clean: The model without a mark; stays as it is.
        marked: The model with one.
        tasks: What is compared.
        seed: Of the fine-tunings.
    """
    ours = {task.name: Frozen.of(marked, task) for task in tasks}
    tests = [np.concatenate([f[t.name].test for t in tasks]) for f in (ours, clean.frozen)]
    return {
        "cosine": mean_cosine(*tests),
        "similarity_correlation": similarity_correlation(*tests),
        "tasks": {
            task.name: measure_cell(clean, marked, task, ours[task.name], seed) for task in tasks
        },
    }


def measure_cell(
    clean: CleanSide, marked: Encoder, task: Task, ours: Frozen, seed: int
) -> dict[str, Any]:
    """Compare the two models on one task."""
    plan, theirs = clean.plan(task, seed), clean.frozen[task.name]
    return {
        "fine_tuned": paired(clean.accuracy(plan), fine_tuned_accuracy(marked, plan)),
        "probe": paired(*(probe_accuracy(part.train, part.test, task) for part in (theirs, ours))),
        "cosine": mean_cosine(ours.test, theirs.test),
        "similarity_correlation": similarity_correlation(ours.test, theirs.test),
    }


def paired(clean: float, marked: float) -> dict[str, float]:
    """Return two accuracies and their difference in points."""
    return {"clean": clean, "marked": marked, "difference": 100 * (marked - clean)}


def settings_of(
    arguments: argparse.Namespace, tasks: list[Task], clean: Encoder, config: EmbeddingConfig
) -> dict[str, Any]:
    """Return what the numbers depend on."""
    device = clean.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    embedding = asdict(config)
    del embedding["seed"]
    return {
        "model": Path(arguments.model).name,
        "preset": arguments.preset,
        "embedding": embedding,
        "seeds": arguments.seeds,
        "limit": arguments.limit,
        "marked_sha256": None if arguments.marked is None else model_digest(arguments.marked),
        "device": name,
        "torch": torch.__version__,
        "fine_tuning": {
            "model_learning_rate": MODEL_RATE,
            "head_learning_rate": HEAD_RATE,
            "warmup_share": WARMUP_SHARE,
            "batch_size": BATCH_SIZE,
            "max_length": clean.max_length,
            "autocast": "bfloat16" if device.type == "cuda" else None,
        },
        "ridge": RIDGE,
        "tasks": {
            task.name: {
                "train_rows": len(task.train.texts),
                "test_rows": len(task.test.texts),
                "labels": task.num_labels,
                "epochs": task.num_epochs,
                "steps": task.num_epochs * math.ceil(len(task.train.texts) / BATCH_SIZE),
            }
            for task in tasks
        },
    }


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--corpus", help="texts that the mark is trained with")
    parser.add_argument("--marked", type=Path, help="a model that has its mark already")
    parser.add_argument("--kept", type=Path, help="keep the clean model's accuracies here")
    parser.add_argument(
        "--clean-only", action="store_true", help="make and keep those accuracies, and no more"
    )
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, help="write the tables, too")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        help="measure nothing: put together the files of runs, of one marked model or of several",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", default="strong")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=JSON",
        help="settings of the embedding that replace the preset's, such as max_steps=100",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="at most so many rows of every split")
    arguments = parser.parse_args(words)
    needed = [arguments.model, arguments.tasks, arguments.corpus or arguments.marked]
    if arguments.merge is None and not arguments.clean_only and not all(needed):
        parser.error("--model, --tasks, and --corpus or --marked are needed")
    if arguments.clean_only and not (arguments.model and arguments.tasks and arguments.kept):
        parser.error("--clean-only needs --model, --tasks and --kept")
    return arguments


def is_made(path: Path, settings: dict[str, Any]) -> bool:
    """Return whether a report holds the same comparison already, of the same marked model."""
    if not path.exists():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    whole = json.loads(json.dumps(settings))
    return found["settings"] == whole and len(found["seeds"]) == len(whole["seeds"])


def write_report(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Write the JSON file, and the page if one is asked for."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(page(report), encoding="utf-8")


def embedding_config(preset: str, changes: Sequence[str]) -> EmbeddingConfig:
    """Return the preset with some settings replaced."""
    values = {}
    for change in changes:
        name, _, text = change.partition("=")
        value = json.loads(text)
        values[name] = tuple(value) if isinstance(value, list) else value
    marks = values.pop("marks", None)
    return replace(preset_config(preset, marks), **values)


def main(words: Sequence[str] | None = None) -> None:
    """Measure all seeds; the file is written anew after each."""
    arguments = parse_arguments(words)
    if arguments.merge:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.merge]
        report = merged(parts)
        write_report(report, arguments)
        print(markdown(report))
        return
    config = embedding_config(arguments.preset, arguments.set)
    report = None if arguments.marked is None else arguments.marked.parent / "report.json"
    if report is not None and report.exists():  # only a folder of `nsmark embed` says
        check_settings(json.loads(report.read_bytes())["training"]["settings"], config)
    clean = open_encoder(arguments.model, purpose="train", device=arguments.device)
    tasks = [load_task(arguments.tasks, name, clean, arguments.limit) for name in SOURCES]
    side = CleanSide.of(clean, tasks, arguments.kept)
    if arguments.clean_only:
        for seed in arguments.seeds:
            for task in tasks:
                side.accuracy(side.plan(task, seed))
        return
    presets = None if arguments.set else [arguments.preset]
    report = {
        "measured": measured(presets, device=arguments.device),
        "settings": settings_of(arguments, tasks, clean, config),
        "seeds": [],
    }
    if arguments.marked is not None and is_made(arguments.json, report["settings"]):
        return
    for seed in arguments.seeds:
        started = time.perf_counter()
        marked, mark = marked_model(arguments, clean, tasks, replace(config, seed=seed))
        after_mark = time.perf_counter()
        row = {"seed": seed, "mark": mark, **measure_seed(side, marked, tasks, seed)}
        row["mark_s"] = round(after_mark - started, 1)
        row["tasks_s"] = round(time.perf_counter() - after_mark, 1)
        print(json.dumps(row), flush=True)
        report["seeds"].append(row)
        report["summary"] = summarise(report["seeds"], num_marks=num_marks(report))
        write_report(report, arguments)
    print(markdown(report))


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    main()
