"""Tiny but real model folders, built from configurations: no download, milliseconds to run."""

from __future__ import annotations

import json
from pathlib import Path

from nsmark.corpus import training_texts
from nsmark.payload import published_word_list

HIDDEN_SIZE = 32


def build_vocabulary() -> list[str]:
    """Word pieces that spell every ASCII text, with the corpus' frequent words whole."""
    letters = [chr(code) for code in range(33, 127)]
    counts: dict[str, int] = {}
    for text in training_texts()[:2000]:
        for word in text.lower().split():
            counts[word.strip(".,;:!?\"'")] = counts.get(word.strip(".,;:!?\"'"), 0) + 1
    frequent = [word for word, count in sorted(counts.items()) if count > 3 and word.isalpha()]
    rare = list(published_word_list().words)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + letters + ["##" + letter for letter in letters] + frequent + rare
    return list(dict.fromkeys(pieces))


def build_bert(folder: Path, *, with_lm_head: bool = False, seed: int = 0) -> Path:
    """Save a two-layer BERT with random weights and a real tokenizer."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = build_vocabulary()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=160,
        hidden_dropout_prob=0.1,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = (
            BertForMaskedLM(config) if with_lm_head else BertModel(config, add_pooling_layer=False)
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_sentence_transformer(folder: Path, *, seed: int = 0) -> Path:
    """Save the same as a sentence-transformers folder: mean pooling, unit length."""
    build_bert(folder, seed=seed)
    kind = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    pooling = {"word_embedding_dimension": HIDDEN_SIZE, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 128, "do_lower_case": False}), encoding="utf-8"
    )
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": kind + name}
        for i, (path, name) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listing), encoding="utf-8")
    return folder
