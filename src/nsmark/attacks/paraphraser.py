"""Two paraphrasers: by a table of synonyms, and by a model of its own (torch, transformers).

The first needs no second model. It exchanges words for others that the stolen model itself holds to
be alike, leaves out words that carry little, and swaps neighbours. Sentences come out clumsy, but
an encoder reads nearly the same in them.

The second is asked as DIPPER is (Krishna, Song, Karpinska, Wieting & Iyyer 2023, "Paraphrasing
evades detectors of AI-generated text, but retrieval is an effective defense"): an encoder-decoder
that is told how many words and how much of the order to keep. Its weights are not ours to ship:
whoever has a folder of them (or of any model trained on the same prompt) gives it.

Both paraphrase the same text with the same seed in the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nsmark.errors import ModelError, NsmarkError
from nsmark.models.encoder import Encoder
from nsmark.models.tokenizer import load_tokenizer
from nsmark.transforms.filters import bare, commonest, word_counts

_STOP_WORDS = """
a an the this that these those some any all of in on at by for from with to into onto over under
and or but so as if than then very quite just also too only still already really is are was were
be been being has have had do does did will would can could shall should may might must it its he
she they we you i his her their our your my him them us me there here which who whom whose what
when where while
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that may be left out, and are never exchanged."""

# How tokenizers mark a token that begins a word: byte-level pairs, SentencePiece.
_WORD_STARTS = ("Ġ", "▁")
_MIN_LETTERS = 3
_ROWS_AT_ONCE = 1024
_EXCHANGED, _DROPPED, _SWAPPED = 0.3, 0.3, 0.15
# Of the second.
_TOP_P = 0.75
_MOST_TOKENS = 256

Synonyms = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Paraphraser:
    """Paraphrases by a table of synonyms."""

    synonyms: Synonyms
    """Of bare words, nearest first."""

    def paraphrases(self, text: str, count: int, seed: int) -> list[str]:
        """Return so many versions of a text; they depend on nothing else.

        No version is empty, and none has more words than the text.
        """
        rng = np.random.default_rng([seed, zlib.crc32(text.encode("utf-8", "replace"))])
        return [self._paraphrase(text, rng) for _ in range(count)]

    def _paraphrase(self, text: str, rng: np.random.Generator) -> str:
        words = text.split()
        if not words:
            return text
        draws = rng.random((len(words), 3))
        kept = []
        for word, (exchange, drop, _) in zip(words, draws, strict=True):
            name = bare(word)
            if name in STOP_WORDS:
                if drop >= _DROPPED:
                    kept.append(word)
            elif exchange < _EXCHANGED and self.synonyms.get(name):
                choices = self.synonyms[name]
                kept.append(_dressed(choices[int(rng.integers(len(choices)))], word))
            else:
                kept.append(word)
        place = 0
        while place + 1 < len(kept):
            if draws[place, 2] < _SWAPPED:
                kept[place], kept[place + 1] = kept[place + 1], kept[place]
                place += 1  # no word wanders further than one place
            place += 1
        return " ".join(kept) or text


def _dressed(name: str, word: str) -> str:
    """Return a word with the punctuation and the capital letter of the one it stands for."""
    core = bare(word)
    start = word.lower().find(core)
    if start < 0 or len(word.lower()) != len(word):  # letters whose lower case is longer
        return name
    inside = word[start : start + len(core)]
    name = name.upper() if len(inside) > 1 and inside.isupper() else name
    name = name[:1].upper() + name[1:] if inside[:1].isupper() else name
    return word[:start] + name + word[start + len(core) :]


def build_paraphraser(
    encoder: Encoder, texts: Iterable[str], *, max_words: int = 8000, num_synonyms: int = 4
) -> Paraphraser:
    """Find synonyms for the words of some texts in a model's own table of input embeddings.

    Args:
        encoder: Whose tokenizer and table are used.
        texts: Both a word and what it is exchanged for stand somewhere in them.
        max_words: The most common so many words, among those that are one token.
        num_synonyms: The nearest so many, by the cosine after the mean is taken away.
    """
    counts, _ = word_counts(texts)
    tokens = word_tokens(encoder.tokenizer.get_vocab())
    known = {
        word: count
        for word, count in counts.items()
        if word in tokens and word not in STOP_WORDS and len(word) >= _MIN_LETTERS
    }
    words = list(commonest(known, max_words, 1 << 30))
    if len(words) < 2:
        return Paraphraser({})
    table = encoder.network.get_input_embeddings().weight.detach()
    rows = table[[tokens[word] for word in words]].float()
    rows = torch.nn.functional.normalize(rows - rows.mean(dim=0), dim=1)
    count = min(num_synonyms, len(words) - 1)
    synonyms: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(words), _ROWS_AT_ONCE):
        cosines = rows[start : start + _ROWS_AT_ONCE] @ rows.T
        own = torch.arange(len(cosines), device=cosines.device)
        cosines[own, own + start] = -2.0  # no word is its own synonym
        nearest = cosines.topk(count, dim=1).indices.tolist()
        for word, places in zip(words[start:], nearest, strict=False):
            synonyms[word] = tuple(words[place] for place in places)
    return Paraphraser(synonyms)


def word_tokens(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens that are whole words of letters, in lower case, with their numbers.

    Of several spellings, that with the lowest number: tokenizers count by frequency.
    """
    marked = any(token.startswith(_WORD_STARTS) for token in vocabulary)
    found: dict[str, int] = {}
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        if marked and not token.startswith(_WORD_STARTS):
            continue  # the middle of a word
        word = (token[1:] if marked else token).lower()
        if word.isalpha():
            found.setdefault(word, number)
    return found


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
