"""A paraphraser that needs no network and no second model (torch).

It exchanges words for others that the stolen model itself holds to be alike, leaves out words
that carry little, and swaps neighbours. Sentences come out clumsy, but an encoder reads nearly
the same in them; and the same text with the same seed is always paraphrased in the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nsmark.alterations.filters import bare, commonest, word_counts
from nsmark.models.encoder import Encoder

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
