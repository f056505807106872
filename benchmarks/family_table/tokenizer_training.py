"""Tokenizers of the families' kinds, trained on the table's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from family_table.tokenizer_kinds import TokenizerKind


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
