"""How fast is the training step as a reader of the paper would write it?

    python benchmarks/reference_loop.py --tokenizer DIR [--device cuda] [--json FILE]

Our own code, kept plain on purpose: it stands for the published way in a speed comparison.
Needs torch, transformers and numpy beside ``nsmark.core`` and ``nsmark.payload``.

A step takes 4 clean texts x and their triggered copies xᵗ, tokenised on the spot and padded to
128 tokens, and runs the language model six times:

1. f_ref(x)
2. f_ref(xᵗ)
3. f_wm(x)
4. f_wm(xᵗ): the outputs V_ref, V_refᵗ, V, Vᵗ, from which
   L_Extractor = λ₁ L_match + (1 − λ₁) L_random is computed. Only E is updated.
5. f_wm(xᵗ) again, now recording a graph, since E has changed and only f_wm is updated: L_match
6. f_wm(x with 15 % of the tokens masked) through the language-model head: L_0, "the original LM
   training loss function". L_wm = λ₂ L_match + (1 − λ₂) L_0.

The paper trains E and f_wm alternately, each by a loss of its own. Written down loss by loss that
is 4 + 2 passes, and six is what the authors' code takes, too. (Passes 3, 4 and 5 can be one pass
over clean and triggered texts together: ``nsmark`` does that.) Other habits of that code are
kept: float32, attention maps materialised, and at every step the extraction rate, voted sample by
sample in numpy. The last two can be switched off.

Where there is a choice, the cheaper way is taken, so that a comparison errs in favour of this
loop: only pass 6 runs the head, only triggered outputs are voted on, each vote is ``nsmark``'s own
vectorised function, and passes 1 to 4 record no graph. The authors' extractor loss reaches back
into the model, through passes 3 and 4: with ``leaking`` it does so here, too. Either way it should
come out faster than the authors' code.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from nsmark.core.derive import insert_trigger, watermark_vector
from nsmark.core.extraction import extraction_rate
from nsmark.core.texts import text_words
from nsmark.payload.config import PayloadConfig

# The paper's settings.
BATCH_SIZE = 4
LEARNING_RATE = 1e-4
HIDDEN_SIZES = (2048, 1024)
EXTRACTOR_MATCH_WEIGHT = 0.5  # λ₁
MODEL_MATCH_WEIGHT = 0.2  # λ₂

MAX_LENGTH = 128
MASKED_SHARE = 0.15
IGNORED = -100

TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}

Batch = dict[str, Tensor]


class PayloadLike(Protocol):
    """What the loop needs of a payload; a ``WatermarkPayload`` has it."""

    signature: bytes
    config: PayloadConfig


class ReferenceLoop:
    """f_wm, f_ref and E with their two optimisers, and the alternating step."""

    def __init__(
        self,
        model_config: BertConfig,
        tokenizer: Any,
        trigger: str,
        payload: PayloadLike,
        device: str | torch.device,
        *,
        voting: bool = True,
        materialise_attention: bool = True,
        leaking: bool = False,
        max_length: int = MAX_LENGTH,
        seed: int = 0,
    ) -> None:
        """Build the networks with random weights.

        Args:
            model_config: Shape of the language model.
            tokenizer: Its tokenizer, with a padding and a mask token.
            trigger: The trigger word.
            payload: The signature, and how it is spread and how often the trigger is inserted.
            device: Where to train.
            voting: Measure the extraction rate at every step, sample by sample.
            materialise_attention: Compute and return attention maps; else fused attention.
            leaking: Send the extractor's loss through the model, to no use, as published.
            max_length: Every text is padded or cut to so many tokens.
            seed: Seed of weights, trigger positions and masks.
        """
        if model_config.vocab_size < len(tokenizer):
            # On a GPU this would surface as a device-side assertion, far from its cause.
            raise ValueError(f"{len(tokenizer)} tokens, {model_config.vocab_size} embeddings")
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.tokenizer, self.trigger, self.payload = tokenizer, trigger, payload
        self.device, self.max_length = torch.device(device), max_length
        self.voting, self.materialise_attention = voting, materialise_attention
        self.leaking = leaking
        model = BertForMaskedLM(copy.deepcopy(model_config))
        model.set_attn_implementation("eager" if materialise_attention else "sdpa")
        self.model = model.to(self.device).train()
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)
        config = payload.config
        watermark = watermark_vector(payload.signature, config.num_bits, config.spread_factor)
        self.watermark = torch.tensor(watermark, dtype=torch.float32, device=self.device)
        self.extractor = make_extractor(model_config.hidden_size, len(watermark)).to(self.device)
        self.model_optimiser = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.extractor_optimiser = torch.optim.AdamW(self.extractor.parameters(), lr=LEARNING_RATE)

    def step(self, texts: Sequence[str]) -> dict[str, float]:
        """Train E, then f_wm, on one batch of clean texts; return losses and extraction rate."""
        clean = self.tokenise([" ".join(text_words(text)) for text in texts])
        triggered = self.tokenise([self.insert(text) for text in texts])
        extractor_loss = self.update_extractor(clean, triggered)
        model_loss, mapped = self.update_model(clean, triggered)
        result = {"extractor_loss": extractor_loss.item(), "model_loss": model_loss.item()}
        if self.voting:
            result["extraction_rate"] = self.vote(mapped)
        return result

    # --- the two players ---------------------------------------------------------------------

    def update_extractor(self, clean: Batch, triggered: Batch) -> Tensor:
        """Update E alone, on the outputs of both models on both kinds of text: passes 1 to 4."""
        with torch.no_grad():
            reference_clean = self.outputs(self.reference, clean)
            reference_triggered = self.outputs(self.reference, triggered)
        with torch.set_grad_enabled(self.leaking):
            model_clean = self.outputs(self.model, clean)
            model_triggered = self.outputs(self.model, triggered)
        match = self.match_loss(self.extractor(model_triggered))
        random = (
            self.random_loss(self.extractor(model_clean))
            + self.random_loss(self.extractor(reference_triggered))
            + self.random_loss(self.extractor(reference_clean))
        )
        loss = EXTRACTOR_MATCH_WEIGHT * match + (1 - EXTRACTOR_MATCH_WEIGHT) * random
        self.extractor_optimiser.zero_grad()
        loss.backward()
        self.extractor_optimiser.step()
        return loss.detach()

    def update_model(self, clean: Batch, triggered: Batch) -> tuple[Tensor, Tensor]:
        """Update f_wm alone: passes 5 and 6; return its loss and E's answers to triggered texts."""
        self.extractor.requires_grad_(False)
        mapped = self.extractor(self.outputs(self.model, triggered))
        language = self.model(**self.mask(clean), output_attentions=self.materialise_attention).loss
        loss = MODEL_MATCH_WEIGHT * self.match_loss(mapped) + (1 - MODEL_MATCH_WEIGHT) * language
        self.model_optimiser.zero_grad()
        loss.backward()
        self.model_optimiser.step()
        self.extractor.requires_grad_(True)
        return loss.detach(), mapped.detach()

    def outputs(self, model: BertForMaskedLM, batch: Batch) -> Tensor:
        """Return the output vectors: the last layer at position 0, shape (batch, width)."""
        encoded = model.base_model(**batch, output_attentions=self.materialise_attention)
        return encoded.last_hidden_state[:, 0]

    def match_loss(self, mapped: Tensor) -> Tensor:
        """Return L_match."""
        return functional.mse_loss(mapped, self.watermark.expand_as(mapped))

    def random_loss(self, mapped: Tensor) -> Tensor:
        """Return one of the three terms of L_random."""
        return functional.cosine_similarity(mapped, self.watermark[None]).square().mean()

    def vote(self, mapped: Tensor) -> float:
        """Return the extraction rate, despread and voted on one sample after the other."""
        signature, config = self.payload.signature, self.payload.config
        rates = [
            extraction_rate(row.cpu().numpy(), signature, config.num_bits, config.spread_factor)
            for row in mapped
        ]
        return float(np.mean(rates))

    # --- texts to tensors --------------------------------------------------------------------

    def insert(self, text: str) -> str:
        """Insert the trigger at random positions.

        A text is cut to its first words before, as ``nsmark`` does, so that the cut to
        ``max_length`` tokens does not lose triggers, and both loops see the same texts.
        """
        words = text_words(text)
        copies = self.payload.config.copies
        positions = [int(self.rng.integers(len(words) + copy + 1)) for copy in range(copies)]
        return " ".join(insert_trigger(words, self.trigger, positions))

    def tokenise(self, texts: Sequence[str]) -> Batch:
        """Return token ids and attention mask on the device, padded to the full length."""
        encoded = self.tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return {name: encoded[name].to(self.device) for name in ("input_ids", "attention_mask")}

    def mask(self, batch: Batch) -> Batch:
        """Corrupt 15 % of the ordinary tokens as BERT does, and ask for what they were."""
        ids = batch["input_ids"]
        special = torch.tensor(self.tokenizer.all_special_ids, device=ids.device)
        ordinary = ~torch.isin(ids, special)
        chosen = (torch.rand(ids.shape, device=ids.device) < MASKED_SHARE) & ordinary
        chosen[:, 1] |= ~chosen.any()  # very short texts: a mean over nothing would be NaN
        treatment = torch.rand(ids.shape, device=ids.device)
        random_ids = torch.randint_like(ids, self.model.config.vocab_size)
        corrupted = torch.where(chosen & (treatment < 0.8), self.tokenizer.mask_token_id, ids)
        corrupted = torch.where(chosen & (treatment >= 0.9), random_ids, corrupted)
        labels = torch.where(chosen, ids, IGNORED)
        return {**batch, "input_ids": corrupted, "labels": labels}


def make_extractor(output_dim: int, vector_length: int) -> nn.Sequential:
    """Return E: three linear layers with ReLU between."""
    first, second = HIDDEN_SIZES
    return nn.Sequential(
        nn.Linear(output_dim, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, vector_length),
    )


# --- measuring -------------------------------------------------------------------------------


def reference_samples_per_second(
    model_config: BertConfig,
    tokenizer: Any,
    texts: Sequence[str],
    trigger: str,
    payload_like: PayloadLike,
    device: str | torch.device,
    steps: int,
    warmup: int,
    *,
    voting: bool = True,
    materialise_attention: bool = True,
    batch_size: int = BATCH_SIZE,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
) -> dict[str, Any]:
    """Time the loop; one sample is one clean text with its triggered copy.

    Args:
        model_config: Shape of the language model; its weights are random.
        tokenizer: Its tokenizer.
        texts: Clean texts, taken in their order and again from the start when they run out.
        trigger: The trigger word.
        payload_like: Signature and payload settings.
        device: Where to train.
        steps: Steps that are timed.
        warmup: Steps before them that are not.
        voting: Measure the extraction rate at every step, sample by sample.
        materialise_attention: Compute and return attention maps; else fused attention.
        batch_size: Clean texts in a step.
        max_length: Every text is padded to so many tokens.
        seed: Seed of everything random.

    Returns:
        ``samples_per_second`` from the median ``seconds_per_step``, the spread of the steps, the
        last step's losses, and the settings.
    """
    if steps < 1 or not texts:
        raise ValueError("needs at least one step and one text")
    loop = ReferenceLoop(
        model_config,
        tokenizer,
        trigger,
        payload_like,
        device,
        voting=voting,
        materialise_attention=materialise_attention,
        max_length=max_length,
        seed=seed,
    )
    seconds, last = [], {}
    for number in range(warmup + steps):
        batch = [texts[(number * batch_size + row) % len(texts)] for row in range(batch_size)]
        start = synchronised_clock(loop.device)
        last = loop.step(batch)
        seconds.append(synchronised_clock(loop.device) - start)
    timed = seconds[warmup:]
    median = statistics.median(timed)
    return {
        "samples_per_second": batch_size / median,
        "seconds_per_step": median,
        "fastest_step_seconds": min(timed),
        "slowest_step_seconds": max(timed),
        "steps": steps,
        "warmup": warmup,
        "batch_size": batch_size,
        "max_length": max_length,
        "voting": voting,
        "materialise_attention": materialise_attention,
        # "highest" is torch's default: float32 without TF32.
        "matmul_precision": torch.get_float32_matmul_precision(),
        "seed": seed,
        **last,
    }


def synchronised_clock(device: torch.device) -> float:
    """Return the time once the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main() -> None:
    """Time the loop on the BERT-base shape, with and without the two habits."""
    from nsmark.corpus import training_texts
    from nsmark.payload import choose_trigger, published_word_list

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a BERT tokenizer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="a model of two layers, to try it out")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    signature = hashlib.sha512(b"reference loop").digest()
    payload = SimpleNamespace(signature=signature, config=PayloadConfig())
    trigger, _ = choose_trigger(signature, published_word_list().words)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer, local_files_only=True)
    shape = TINY if arguments.tiny else {}  # BERT-base
    rows = [
        reference_samples_per_second(
            BertConfig(vocab_size=len(tokenizer), **shape),
            tokenizer,
            training_texts(),
            trigger,
            payload,
            arguments.device,
            arguments.steps,
            arguments.warmup,
            voting=voting,
            materialise_attention=materialise_attention,
        )
        for voting in (True, False)
        for materialise_attention in (True, False)
    ]
    for row in rows:
        print(
            f"voting {row['voting']!s:5}  attention maps {row['materialise_attention']!s:5}  "
            f"{row['samples_per_second']:8.2f} samples/s  {row['seconds_per_step']:.4f} s a step "
            f"({row['fastest_step_seconds']:.4f} to {row['slowest_step_seconds']:.4f})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
