"""How each family cuts texts into tokens."""

from __future__ import annotations

from dataclasses import dataclass


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
