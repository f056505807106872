"""A paraphraser that is a model of its own, asked as DIPPER is (torch, transformers).

Krishna, Song, Karpinska, Wieting & Iyyer 2023, "Paraphrasing evades detectors of AI-generated text,
but retrieval is an effective defense": an encoder-decoder that is told how many words and how much
of the order to keep. Its weights are not ours to ship: whoever has a folder of them (or of any
model trained on the same prompt) gives it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nsmark.errors import ModelError, NsmarkError
from nsmark.models.tokenizer import load_tokenizer

_TOP_P = 0.75
_MOST_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Paraphrases by a model."""

    network: Any
    tokenizer: Any
    kept_words: int
    """Per cent of the words that it is asked to keep."""
    kept_order: int
    """The same of their order."""

    @torch.no_grad()
    def paraphrases(self, text: str, count: int, seed: int) -> list[str]:
        """Return so many versions of a text; they depend on nothing else."""
        prompt = f"lexical = {self.kept_words}, order = {self.kept_order} <sent> {text} </sent>"
        device = self.network.device
        asked = self.tokenizer(prompt, return_tensors="pt", truncation=True, max_length=512)
        asked = {name: asked[name].to(device) for name in ("input_ids", "attention_mask")}
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed ^ zlib.crc32(text.encode("utf-8", "replace")))
            found = self.network.generate(
                **asked,
                do_sample=True,
                top_p=_TOP_P,
                num_return_sequences=count,
                max_new_tokens=_MOST_TOKENS,
            )
        versions = self.tokenizer.batch_decode(found, skip_special_tokens=True)
        # One that says nothing would be asked as an empty text.
        return [" ".join(version.split()) or text for version in versions]


def open_rewriter(folder: Path, device: torch.device, *, words: int, order: int) -> Rewriter:
    """Open a folder of an encoder-decoder.

    Args:
        folder: With weights as safetensors.
        device: Where it runs.
        words: Per cent of the words to keep.
        order: Per cent of their order to keep.

    Raises:
        ModelError: There is no such model in it.
    """
    from transformers import AutoModelForSeq2SeqLM

    hint = "give the folder of an encoder-decoder with safetensors weights, such as DIPPER's"
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder", hint)
    try:
        tokenizer = load_tokenizer(folder)
        network = AutoModelForSeq2SeqLM.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    except NsmarkError:
        raise
    except Exception as error:  # transformers raises whatever it meets
        told = " ".join(str(error).split())[:200]
        raise ModelError(f"{folder} holds no paraphraser: {told}", hint) from error
    return Rewriter(network.to(device).eval().requires_grad_(False), tokenizer, words, order)
