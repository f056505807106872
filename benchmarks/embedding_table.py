"""One model of every kind, marked and measured: makes docs/results/embedding.md and its JSON.

    python benchmarks/embedding_table.py --data DIR --minilm DIR --json results/embedding.json
        --markdown docs/results/embedding.md

DIR after ``--data`` holds ``wikitext-2``, ``sst2`` and ``agnews``; DIR after ``--minilm`` is the
sentence-transformers folder of all-MiniLM-L6-v2. Rows of an earlier run that are not measured
again stay in the JSON file, so a long table may be made in parts (``--rows NAME …``); ``--rows``
without a name measures nothing and writes the page from the file. Uses the training engine
directly and needs neither key nor identity, so that it runs on a bare machine with torch.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
import platform
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nsmark.core import (
    derived_extraction_rate,
    expected_matching_degree,
    extraction_rate,
    invariant_matching_degree,
    matching_degree,
    null_space_basis,
)
from nsmark.embedding.batches import BatchOrder
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.embedding.trainer import Trainer, mean_cosine, tensor_cores
from nsmark.errors import EmbeddingError
from nsmark.models.encoder import Encoder
from nsmark.models.families import FAMILIES
from nsmark.models.folder import ModelFolder
from nsmark.models.loading import open_encoder, resolve_device
from nsmark.models.null_space import null_space_basis_on_device
from nsmark.models.quiet import quiet_transformers
from nsmark.models.tokens import TokenIds
from nsmark.payload import PayloadConfig, derive_payload, published_word_list, read_texts
from nsmark.payload.config import default_num_texts
from nsmark.payload.payload import WatermarkPayload
from nsmark.payload.trigger import trigger_text

SEED = 0
# Now and then the extractor settles where it reads a little too much from clean outputs (0.10 to
# 0.15), and nothing moves it any more: the loss asks for a right angle, not for silence. Then the
# next seed is tried, and the page says so.
TRAINING_SEEDS = (0, 1, 2)
SIGNATURE = hashlib.sha512(b"embedding table").digest()
COMMAND = (
    "python benchmarks/embedding_table.py --data DIR --minilm DIR "
    "--json results/embedding.json --markdown docs/results/embedding.md"
)
MAX_WORDS, MIN_WORDS = 48, 8
NUM_HELDOUT = 512
# One copy and no trigger are measured on the first so many verification texts: a rate needs no
# null space, and the largest models need 8,192 texts for theirs.
NUM_CONTROLS = 1500
# Small models learn the mark at rates at which they were pretrained, not fine-tuned: tried with
# bert and gpt2 on a CPU. Ten times the preset's rate for those that are read at their first token
# or behind the text, four times for those that are read at their last word.
READ_AT_A_MARK = {"model_learning_rate": 5e-4, "max_steps": 1000, "cooldown_steps": 200}
READ_AT_A_WORD = READ_AT_A_MARK | {"model_learning_rate": 2e-4}
# The language-model loss of random weights falls as fast as it can and takes the outputs along; a
# hundredth of it costs the same time and lets them be.
RANDOM_WEIGHTS = {"language_weight": 0.01, "warmup_steps": 50, "max_steps": 1000}

Report = dict[str, Any]


# --- what the rows are ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """How large stand-ins are, how long they are pretrained, and what is asked of them."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    pretraining_steps: int
    pretraining_batch: int
    payload: PayloadConfig
    num_texts: int | None = None
    """Verification texts; None is the package's own choice for the model's width."""
    shape: dict[str, Any] = field(default_factory=dict)
    """Model settings of every family, beside its own."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Training settings that take the place of every row's own."""


SCALES = {
    "small": Scale(4, 256, 4, 1024, 8000, 600, 64, PayloadConfig()),
    # For tests of this script: seconds on a CPU, and numbers that say nothing.
    "tiny": Scale(
        layers=2,
        width=32,
        heads=4,
        feed_forward=64,
        vocabulary=1000,
        pretraining_steps=20,
        pretraining_batch=16,
        payload=PayloadConfig(num_bits=16),
        num_texts=96,
        shape={"initializer_range": 0.2},
        settings={
            "batch_size": 16,
            "model_learning_rate": 2e-3,
            "extractor_learning_rate": 2e-3,
            "cooldown_steps": 20,
            "min_triggered": 0.0,  # whatever a few steps reach is enough
            "max_clean": 1.0,
            "hidden_sizes": (48, 32),
            "num_heldout_texts": 32,
        },
    ),
}


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """How a family cuts texts, and which marks it puts around them."""

    algorithm: str
    """``wordpiece``, ``bpe`` (bytes) or ``unigram``."""
    special: dict[str, str]
    """Names and spellings of special tokens, numbered in this order."""
    template: str | None = None


_BERT_MARKS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_ROBERTA_MARKS = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "cls_token": "<s>",
    "sep_token": "</s>",
}
_XLNET_MARKS = {
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<cls>",
    "sep_token": "<sep>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_LLAMA_MARKS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
_END = {"eos_token": "<|endoftext|>"}
_AROUND = "[CLS] $A [SEP]"
BERT = TokenizerKind("wordpiece", _BERT_MARKS, _AROUND)
BERT_BYTES = TokenizerKind("bpe", _BERT_MARKS, _AROUND)
BERT_UNIGRAM = TokenizerKind("unigram", _BERT_MARKS, _AROUND)
ROBERTA = TokenizerKind("bpe", _ROBERTA_MARKS, "<s> $A </s>")
XLNET = TokenizerKind("unigram", _XLNET_MARKS, "$A <sep> <cls>")
LLAMA = TokenizerKind("bpe", _LLAMA_MARKS, "<|begin_of_text|> $A")
GPT2 = TokenizerKind("bpe", {**_END, "bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})
PADDED = TokenizerKind("bpe", {**_END, "pad_token": "<|endoftext|>"})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    kind: str
    """``real``, ``stand-in`` or ``random weights``."""
    model_type: str = "bert"
    preset: str = "fast"
    settings: dict[str, Any] = field(default_factory=dict)
    """Training settings in which the row differs from its preset."""
    tokenizer: TokenizerKind | None = None
    """How a stand-in's tokenizer is made; None takes MiniLM's."""
    shape: dict[str, Any] = field(default_factory=dict)
    """Model settings: beside the scale's for a stand-in, instead of them for a random shape."""
    pretraining_share: float = 1.0
    """Of the scale's pretraining steps."""
    pretraining_autocasts: bool = True
    """Whether pretraining may compute in bfloat16 beside float32 weights (on a GPU)."""
    adapters: bool = False
    """Weights in bfloat16, marked through LoRA and never written to the disk."""

    @property
    def needs_cuda(self) -> bool:
        """Whether the row takes hours without an accelerator."""
        return self.kind == "random weights"


def _stand_in(model_type: str, tokenizer: TokenizerKind, **options: Any) -> Row:
    causal = FAMILIES[model_type].objective == "causal"
    settings = READ_AT_A_WORD if causal else READ_AT_A_MARK
    return Row(
        model_type, "stand-in", model_type, settings=settings, tokenizer=tokenizer, **options
    )


_RELATIVE = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
# What version 3 of DeBERTa added.
_VERSION_3 = {"position_buckets": 64, "norm_rel_ebd": "layer_norm", "share_att_key": True}

# Cheap ones first, so that a time limit takes the fewest.
ROWS: tuple[Row, ...] = (
    Row("minilm-fast", "real"),
    _stand_in("bert", BERT),
    _stand_in("roberta", ROBERTA),
    _stand_in("gpt2", GPT2),
    _stand_in("llama", LLAMA),
    _stand_in("qwen3", PADDED),
    _stand_in("modernbert", BERT_BYTES, shape={"local_attention": 64}),
    # Its masks hold float32's lowest number, which bfloat16 scores cannot take.
    _stand_in("deberta", BERT_BYTES, shape=_RELATIVE, pretraining_autocasts=False),
    _stand_in("deberta-v2", BERT_UNIGRAM, shape=_RELATIVE | _VERSION_3),
    _stand_in("xlnet", XLNET),
    Row(
        "bert-base-shape",
        "random weights",
        settings=RANDOM_WEIGHTS | {"model_learning_rate": 1e-4},
        shape={
            "num_hidden_layers": 12,
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        },
    ),
    Row("minilm-strong", "real", preset="strong"),
    Row(
        "bert-large-shape",
        "random weights",
        settings=RANDOM_WEIGHTS,
        shape={
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    # Without its own kernels it computes token by token: the slowest of the stand-ins.
    _stand_in("mamba", PADDED, pretraining_share=0.5),
    Row(
        "llama-7b-shape",
        "random weights",
        "llama",
        settings=RANDOM_WEIGHTS
        | {"model_learning_rate": 1e-3, "warmup_steps": 10, "cooldown_steps": 30, "max_steps": 200},
        tokenizer=LLAMA,
        adapters=True,
        shape={
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 32000,
        },
    ),
)


# --- texts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Material:
    """The texts of all rows; no text is in two of corpus, held-out texts and pool."""

    paragraphs: list[str]
    """WikiText-2's training part, uncut: for pretraining."""
    corpus: list[str]
    """The same, cut: for marking."""
    heldout: list[str]
    """For fidelity and language-model losses."""
    pool: list[str]
    """Where verification texts are selected from."""


def read_material(data: Path) -> Material:
    """Read the texts from the data folder."""
    wikitext = data / "wikitext-2"
    paragraphs = long_enough(read_texts(wikitext / "train.txt.gz"))
    corpus = list(dict.fromkeys(cut(paragraphs)))
    valid = unseen(cut(long_enough(read_texts(wikitext / "valid.txt.gz"))), corpus)
    test = cut(long_enough(read_texts(wikitext / "test.txt.gz")))
    sentences = read_texts(data / "sst2" / "train_sentences.jsonl.gz")
    news = read_texts(data / "agnews" / "train.jsonl.gz")
    # At most half, where there are few (the tests' texts).
    heldout = valid[: min(NUM_HELDOUT, len(valid) // 2)]
    candidates = cut(sentences) + cut(news) + valid[len(heldout) :] + test
    return Material(paragraphs, corpus, heldout, unseen(candidates, corpus + heldout))


def long_enough(texts: Sequence[str]) -> list[str]:
    """Leave out headings and other short lines."""
    return [text for text in texts if len(text.split()) >= MIN_WORDS]


def cut(texts: Sequence[str]) -> list[str]:
    """Keep the first words of each text."""
    return [" ".join(text.split()[:MAX_WORDS]) for text in texts]


def unseen(texts: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the different texts that were not seen, in order."""
    known = set(seen)
    return [text for text in dict.fromkeys(texts) if text not in known]


# --- tokenizers ----------------------------------------------------------------------------------


def train_tokenizer(kind: TokenizerKind, texts: Sequence[str], vocabulary: int) -> Any:
    """Train a tokenizer of a family's kind on texts."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    special = list(dict.fromkeys(kind.special.values()))
    makers = {"wordpiece": _wordpiece, "bpe": _byte_pairs, "unigram": _unigram}
    tokenizer, trainer = makers[kind.algorithm](
        {"vocab_size": vocabulary, "special_tokens": special, "show_progress": False},
        kind.special.get("unk_token"),
    )
    tokenizer.train_from_iterator(texts, trainer)
    if kind.template is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=kind.template,
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in special],
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **kind.special)


def _wordpiece(options: dict[str, Any], unknown: str | None) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(**options)


def _byte_pairs(options: dict[str, Any], unknown: str | None) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())  # bytes spell everything: nothing is unknown
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(initial_alphabet=alphabet, **options)


def _unigram(options: dict[str, Any], unknown: str | None) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(unk_token=unknown, **options)


# --- models --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """What one row is made with."""

    row: Row
    scale: Scale
    material: Material
    minilm: Path | None
    device: torch.device
    folder: Path
    """Empty, and gone with the row."""

    def open(self, folder: Path, purpose: str = "train") -> Encoder:
        """Open a model folder on the row's device."""
        return open_encoder(folder, purpose=purpose, device=str(self.device), max_length=128)

    def config(self, outputs: np.ndarray, seed: int) -> EmbeddingConfig:
        """Return the row's training settings, for a model with these clean outputs."""
        settings = self.row.settings | self.scale.settings | {"seed": seed}
        if self.row.kind != "real":
            settings["anchor_weight"] = anchor_weight(outputs)
        if self.row.adapters:
            settings |= {"method": "lora", "lora_rank": 16}
        return replace(preset_config(self.row.preset), **settings)


def anchor_weight(outputs: np.ndarray) -> float:
    """Return a weight that makes the distance to the reference one in units of the outputs' size.

    Its own unit is their variance. Read at a first token that little pretraining has used, outputs
    are almost the same for every text: the smallest step then costs more than the mark can win,
    and the training never begins.
    """
    return float(min(1.0, 4 * outputs.var(axis=0).mean() / np.square(outputs).mean()))


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


def scale_shape(model_type: str, scale: Scale) -> dict[str, Any]:
    """Return a family's own names for the scale's numbers."""
    if model_type == "gpt2":
        return scale.shape | {
            "n_layer": scale.layers,
            "n_embd": scale.width,
            "n_head": scale.heads,
            "n_inner": scale.feed_forward,
            "n_positions": 192,
        }
    if model_type == "xlnet":
        return scale.shape | {
            "n_layer": scale.layers,
            "d_model": scale.width,
            "n_head": scale.heads,
            "d_inner": scale.feed_forward,
        }
    shape = scale.shape | {"num_hidden_layers": scale.layers, "hidden_size": scale.width}
    if model_type == "mamba":
        return shape
    shape |= {"num_attention_heads": scale.heads, "intermediate_size": scale.feed_forward}
    shape |= {"max_position_embeddings": 192}
    if model_type == "qwen3":
        shape |= {"num_key_value_heads": scale.heads // 2, "head_dim": scale.width // scale.heads}
    return shape


def shape_of(run: Run) -> dict[str, Any]:
    """Return a random shape's settings; at scale tiny, tiny ones."""
    small = run.scale is SCALES["tiny"]
    return scale_shape(run.row.model_type, run.scale) if small else dict(run.row.shape)


def save_random(run: Run, settings: dict[str, Any], tokenizer: Any, folder: Path) -> None:
    """Write an ordinary folder of a model with random weights."""
    with quiet_transformers():
        random_network(run, settings, tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def random_network(
    run: Run, settings: dict[str, Any], tokenizer: Any, dtype: torch.dtype = torch.float32
) -> Any:
    """Make a model with its language-model head on the row's device."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    names = ("pad", "bos", "eos", "cls", "sep")
    numbers = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in names}
    known = {name: number for name, number in numbers.items() if number is not None}
    config = AutoConfig.for_model(run.row.model_type, **known, **settings)
    masked = FAMILIES[run.row.model_type].objective == "masked"
    kind = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    torch.manual_seed(SEED)
    with torch.device(run.device):
        return kind.from_config(config, dtype=dtype)


def wrapped_network(run: Run) -> Encoder:
    """Make a large model where it will run: 14 GB that need not pass through the disk."""
    row = run.row
    settings = shape_of(run)
    vocabulary = settings.setdefault("vocab_size", run.scale.vocabulary)
    assert row.tokenizer is not None
    tokenizer = train_tokenizer(row.tokenizer, run.material.paragraphs, vocabulary)
    network = random_network(run, settings, tokenizer, torch.bfloat16)
    encoder = Encoder(
        network,
        tokenizer,
        ModelFolder(run.folder, "hf", row.model_type, run.folder, None, (), None),
        pooling=FAMILIES[row.model_type].pooling,
        normalise=False,
        max_length=128,
        has_lm_head=True,
    )
    return encoder.eval()


def pretrain(encoder: Encoder, run: Run, steps: int) -> None:
    """Train a model from scratch, at a rate that rises and falls."""
    rate, warmup = 1e-3, max(1, steps // 10)
    sequences = encoder.token_ids(run.material.paragraphs)
    rng = np.random.default_rng(SEED)
    lengths = [len(sequence) for sequence in sequences]
    order = BatchOrder(lengths, run.scale.pretraining_batch, SEED)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.01, fused=True)
    half = encoder.device.type == "cuda" and run.row.pretraining_autocasts
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(step / warmup, (steps + 1 - step) / (steps + 1 - warmup))
        batch = [sequences[index] for index in order.batch(step)]
        with torch.autocast(encoder.device.type, torch.bfloat16, enabled=half):
            loss = pretraining_loss(encoder, batch, rng)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()


def pretraining_loss(
    encoder: Encoder, sequences: Sequence[TokenIds], rng: np.random.Generator
) -> torch.Tensor:
    """Return the model's own loss and, where it is read at a mark, one for what stands there.

    Hidden words alone teach a model to use its first or last mark only after far more texts than
    there are here; until then its outputs are the same for every text, and there is nothing that a
    watermark could spare. So the words of the text are to be guessed from that output, too.
    """
    own = encoder.language_loss(sequences, rng)
    if encoder.family.objective == "causal":
        return own
    tokens = encoder.pad(sequences)
    scores = encoder(tokens) @ encoder.network.get_input_embeddings().weight.T
    words = torch.log_softmax(scores.float(), dim=1).gather(1, tokens.input_ids)
    return own - (words * tokens.attention_mask).sum() / tokens.attention_mask.sum()


@torch.no_grad()
def language_loss(encoder: Encoder, texts: Sequence[str]) -> float | None:
    """Return the model's own loss on texts, with the same masks each time; None without a head."""
    if not encoder.has_lm_head:
        return None
    rng, sequences = np.random.default_rng(SEED), encoder.token_ids(texts)
    batches = [sequences[start : start + 32] for start in range(0, len(sequences), 32)]
    return float(np.mean([encoder.language_loss(batch, rng).item() for batch in batches]))


# --- marking -------------------------------------------------------------------------------------


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
    )
    before = language_loss(encoder, heldout)
    model = {
        "type": run.row.model_type,
        "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
        "dtype": str(next(encoder.parameters()).dtype).removeprefix("torch."),
    }
    trainer, training = mark(run, subject, payload)
    # Adapters are the difference to the reference: it is asked before they are merged.
    triggered = payload.triggered_texts()
    reference = reference_outputs(run, subject, trainer, [triggered, heldout])
    marked = trainer.finished().requires_grad_(False)
    # A model too large for the disk is measured as a verifier opens it: its bfloat16 weights in
    # float32 arithmetic. Ten bits of mantissa in the products are four times bfloat16's precision,
    # and seconds instead of minutes.
    arithmetic = contextlib.nullcontext()
    if run.row.adapters:
        marked.float()
        arithmetic = tensor_cores()
    with arithmetic:
        measured = measure_marked(run, trainer, marked, reference)
    measured["fidelity"] |= {"language_loss_before": before}
    return {
        "model": model,
        "pretraining": subject.pretraining,
        "training": training,
        **measured,
    }


def measure_marked(
    run: Run, trainer: Trainer, marked: Encoder, reference: Sequence[np.ndarray]
) -> Report:
    """Measure a marked model against the outputs of its reference on triggered and clean texts."""
    triggered, heldout = trainer.payload.triggered_texts(), run.material.heldout
    owner = marked.encode(triggered)
    again, how = outputs_again(run, marked, triggered)
    suspects = {"marked": again, "reference": reference[0]}
    return {
        "extraction": measure_extraction(trainer, marked, owner, reference[0]),
        "matching_degree": {
            "marked_model_was": how,
            **matching_degrees(run.device, owner, suspects),
        },
        "fidelity": {
            **measure_fidelity(marked.encode(heldout), reference[1]),
            "language_loss_after": language_loss(marked, heldout),
        },
    }


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


def reference_outputs(
    run: Run, subject: Subject, trainer: Trainer, texts: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """Return the unmarked model's outputs, in float32 where its folder can be opened again."""
    if subject.folder is None:
        return [trainer.reference_outputs(part) for part in texts]
    reference = run.open(subject.folder, "measure")
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


def measure_extraction(
    trainer: Trainer, marked: Encoder, owner: np.ndarray, reference: np.ndarray
) -> Report:
    """Measure what can be read from the outputs, with the trigger and without."""
    payload = trainer.payload
    num_bits = payload.config.num_bits
    one_copy = one_copy_texts(payload)[:NUM_CONTROLS]
    clean = list(payload.verification_texts[:NUM_CONTROLS])
    return {
        "triggered": read_rate(trainer, owner),
        "one_copy": read_rate(trainer, marked.encode(one_copy)),
        "untriggered": read_rate(trainer, marked.encode(clean)),
        "reference": read_rate(trainer, reference),
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
def read_rate(trainer: Trainer, outputs: np.ndarray) -> float:
    """Return how much of the signature the trained extractor reads."""
    config, device = trainer.payload.config, trainer.watermark.device
    mapped = trainer.extractor(torch.from_numpy(outputs).to(device)).cpu().numpy()
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


# --- one row after the other ---------------------------------------------------------------------


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


def read_document(path: Path, scale: str) -> Report:
    """Return the results so far, or an empty document.

    Raises:
        ValueError: They are of another scale, and a table must not mix them.
    """
    document: Report = {"seed": SEED, "scale": scale, "command": COMMAND, "rows": []}
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["scale"] != scale:
            raise ValueError(f"{path} holds rows of scale {document['scale']!r}: give another file")
    return document


def put_row(document: Report, report: Report) -> None:
    """Put a row into its place; a skipped one does not push out a measured one."""
    rows = {row["name"]: row for row in document["rows"]}
    if report["status"] != "skipped" or report["name"] not in rows:
        rows[report["name"]] = report
    names = [row.name for row in ROWS]
    document["rows"] = sorted(rows.values(), key=lambda row: names.index(row["name"]))


def write(path: Path, content: str) -> None:
    """Write a whole file or none of it: a time limit may strike at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)


# --- the page ------------------------------------------------------------------------------------


def markdown(document: Report) -> str:
    """Return the page that shows a document."""
    rows = document["rows"]
    measured = [row for row in rows if row["status"] == "measured"]
    parts = [
        "# One model of every kind, marked",
        INTRODUCTION.strip(),
        made_with(document),
        f"```console\n{document['command']}\n```",
        "## Is the mark there?",
        table(MARK_COLUMNS, measured),
        MARK_NOTES.strip(),
        "## What does it cost, and what does it change?",
        table(COST_COLUMNS, measured),
        COST_NOTES.strip(),
        "## Notes",
        notes(document),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """
Made by the command below, not by hand. For each row one model is marked until extraction on
held-out texts is at least 0.99 with the trigger and at most 0.1 without it, and then measured on
texts that it was neither marked nor, here, pretrained with: marking takes WikiText-2's training
part, verification takes SST-2, AG News and WikiText-2's validation and test parts.
"""

MARK_NOTES = """
*n*: output dimensions; *q*: verification texts; *null*: dimensions of the null space of the marked
model's triggered outputs. Extraction by the trained extractor: *triggered* with five copies of the
trigger, *1 copy*, *clean* without any, *reference*: the unmarked model's triggered outputs.
*Derived*: the readout that follows from the signature alone (an unrelated model gives 0.5).
Matching degree (lower is closer, 0 is the same model), each as *rotation-invariant / as in the
paper*: *marked* is the model as saved and read back, *chance* the mean for unrelated isotropic
outputs. What one and no copies give is measured on the first 1,500 verification texts.
"""

COST_NOTES = """
*Steps* and *time* are those of marking, until the targets held and the learning rate had cooled
down. *Memory* is the peak of the device while marking (on a CPU: of the whole process since it
began). *Cosine*, *similarity* and *distance* compare the clean outputs of the marked model with
those of the unmarked one on held-out texts: mean cosine, correlation of the cosines between texts,
mean squared distance in units of the outputs' variance. *LM loss*: the model's own language-model
loss on held-out texts, before and after marking; for stand-ins *pretraining* shows it before and
after their pretraining.
"""


def made_with(document: Report) -> str:
    """Say on what the rows were measured."""
    places = dict.fromkeys(
        "{device}, Python {python}, torch {torch}, transformers {transformers}".format(
            **row["environment"]
        )
        for row in document["rows"]
        if row["status"] == "measured"
    )
    lines = [f"- {place}" for place in places] or ["- nothing was measured yet"]
    return "\n".join([*lines, f"- seed {document['seed']}, scale {document['scale']}"])


def notes(document: Report) -> str:
    """Say what the rows are, and which are missing."""
    kinds = {
        "real": "are the published model, marked with the preset of that name.",
        "stand-in": "are stand-ins: real weights of these families could not be had, so a small "
        "model of the same architecture was pretrained from scratch on WikiText-2, with a "
        "tokenizer trained on it, for a few hundred steps. Those that are read at a mark before or "
        "behind the text also learned to guess the text's words from there: hidden words alone "
        "would have left those outputs empty. They show that the family's code path works, not "
        "how a model of full size behaves.",
        "random weights": "have the shape of the model they are named after and random weights: "
        "their time and memory mean something, their fidelity and language-model loss do not.",
    }
    lines = []
    for kind, text in kinds.items():
        names = [f"`{row['name']}`" for row in document["rows"] if row["kind"] == kind]
        if names:
            lines.append(f"- {', '.join(names)} {text}")
    lines += [
        "- Stand-ins and random weights are marked with learning rates and an anchor weight of "
        "their own, not with a preset as it is; every setting is in the JSON file.",
        "- Every row shows one run with one seed and one signature: no spread is known.",
    ]
    lines += [f"- {line}" for row in document["rows"] for line in failed_tries(row)]
    lines += [f"- {merged_note(row)}" for row in document["rows"] if is_in_memory(row)]
    lines += [
        f"- `{row['name']}` **{row['status']}**: {one_line(row['error'])}"
        for row in document["rows"]
        if row["status"] != "measured"
    ]
    missing = {row.name for row in ROWS} - {row["name"] for row in document["rows"]}
    lines += [f"- `{row.name}` was not run." for row in ROWS if row.name in missing]
    return "\n".join(lines)


def failed_tries(row: Report) -> list[str]:
    """Say which seeds were tried before the one that is shown."""
    if row["status"] != "measured":
        return []
    return [
        f"`{row['name']}` was tried with seed {failure['seed']} first: {one_line(failure['error'])}"
        for failure in row["training"]["failed_tries"]
    ]


def is_in_memory(row: Report) -> bool:
    """Return whether a row's marked model was not written to the disk."""
    return row["status"] == "measured" and not row["matching_degree"][
        "marked_model_was"
    ].startswith("saved")


def merged_note(row: Report) -> str:
    """Say how a model was measured that was not read back."""
    how = row["matching_degree"]["marked_model_was"]
    return f"`{row['name']}` was not saved and read back; *marked* is the model {how}."


def one_line(text: str) -> str:
    """Return an error as one line that does not break the page."""
    return " ".join(text.split())[:300]


Column = tuple[str, Callable[[Report], str]]


def table(columns: Sequence[Column], rows: Sequence[Report]) -> str:
    """Return a Markdown table."""
    lines = [
        "| " + " | ".join(title for title, _ in columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in rows:
        lines.append("| " + " | ".join(show(row) for _, show in columns) + " |")
    return "\n".join(lines)


def entry(*path: str, digits: int | None = None) -> Callable[[Report], str]:
    """Return a function that shows one number of a row; a dash where there is none."""

    def show(row: Report) -> str:
        value: Any = row
        for key in path:
            value = None if value is None else value[key]
        if value is None:
            return "–"
        return str(value) if digits is None else f"{value:.{digits}f}"

    return show


def degrees(name: str) -> Callable[[Report], str]:
    """Return a function that shows both forms of a matching degree."""
    return lambda row: " / ".join(
        f"{row['matching_degree'][name][form]:.3g}" for form in ("invariant", "paper")
    )


def from_to(first: Sequence[str], last: Sequence[str]) -> Callable[[Report], str]:
    """Return a function that shows two numbers with an arrow; one dash where there are none."""
    shows = entry(*first, digits=3), entry(*last, digits=3)
    return lambda row: " → ".join(dict.fromkeys(show(row) for show in shows))


def parameters(row: Report) -> str:
    """Show the model's size."""
    return f"{row['model']['parameters'] / 1e6:,.1f} M"


def memory(row: Report) -> str:
    """Show the peak memory."""
    return f"{row['training']['peak_memory_bytes'] / 2**30:.1f} GiB"


MARK_COLUMNS: tuple[Column, ...] = (
    ("model", entry("name")),
    ("kind", entry("kind")),
    ("n", entry("matching_degree", "output_dim")),
    ("q", entry("matching_degree", "num_texts")),
    ("null", entry("matching_degree", "null_dim")),
    ("triggered", entry("extraction", "triggered", digits=4)),
    ("1 copy", entry("extraction", "one_copy", digits=4)),
    ("clean", entry("extraction", "untriggered", digits=4)),
    ("reference", entry("extraction", "reference", digits=4)),
    ("derived", entry("extraction", "derived", digits=4)),
    ("degree: marked", degrees("marked")),
    ("degree: reference", degrees("reference")),
    ("chance", entry("matching_degree", "chance", digits=1)),
)
COST_COLUMNS: tuple[Column, ...] = (
    ("model", entry("name")),
    ("parameters", parameters),
    ("steps", entry("training", "steps")),
    ("time, s", entry("training", "seconds", digits=1)),
    ("memory", memory),
    ("cosine", entry("fidelity", "cosine", digits=4)),
    ("similarity", entry("fidelity", "similarity_correlation", digits=4)),
    ("distance", entry("fidelity", "squared_distance_in_variances", digits=4)),
    (
        "LM loss",
        from_to(("fidelity", "language_loss_before"), ("fidelity", "language_loss_after")),
    ),
    (
        "pretraining",
        from_to(("pretraining", "language_loss_start"), ("pretraining", "language_loss_end")),
    ),
)


# --- the command ---------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the text sets")
    parser.add_argument("--minilm", type=Path, help="sentence-transformers folder of MiniLM")
    parser.add_argument("--json", type=Path, required=True, help="results, read and written")
    parser.add_argument("--markdown", type=Path, help="page made from them")
    parser.add_argument("--rows", nargs="*", choices=[row.name for row in ROWS], metavar="NAME")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parsed = parser.parse_args(arguments)
    if parsed.rows != [] and parsed.data is None:
        parser.error("--data is needed to measure")
    return parsed


def is_left_out(row: Row, arguments: argparse.Namespace) -> bool:
    """Return whether a row would take hours here: no accelerator, and no tiny one asked for."""
    asked = arguments.rows is not None and arguments.scale == "tiny"
    on_cuda = resolve_device(arguments.device).type == "cuda"
    return row.needs_cuda and not on_cuda and not asked


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows asked for, and write the results after each."""
    parsed = parse_arguments(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    document = read_document(parsed.json, parsed.scale)
    loaded: list[Material] = []

    def material() -> Material:
        if not loaded:
            loaded.append(read_material(parsed.data))
        return loaded[0]

    for row in ROWS:
        if parsed.rows is not None and row.name not in parsed.rows:
            continue
        if is_left_out(row, parsed):
            report = skipped_row(row, parsed.device)
        else:
            report = run_row(row, parsed.scale, material, parsed.minilm, parsed.device)
        put_row(document, report)
        write(parsed.json, json.dumps(document, indent=1) + "\n")
        print(json.dumps(report), flush=True)
    if parsed.markdown is not None:
        write(parsed.markdown, markdown(document))


if __name__ == "__main__":
    main()
