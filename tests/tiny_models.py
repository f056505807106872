"""Tiny but real model folders, built from configurations: no download, milliseconds to run."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from nsmark.corpus import training_texts
from nsmark.payload import published_word_list

HIDDEN_SIZE = 32


@functools.cache
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


# Every family of nsmark.models.families, in two layers of 32 dimensions.
_COMMON = {"hidden_size": HIDDEN_SIZE, "num_hidden_layers": 2, "num_attention_heads": 4}
_FEED_FORWARD = {"intermediate_size": 64}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_SHORT = {"max_position_embeddings": 160}
_GROUPED = {"num_key_value_heads": 2, "tie_word_embeddings": True}
FAMILY_CONFIGS: dict[str, dict[str, object]] = {
    "albert": {**_COMMON, **_FEED_FORWARD, **_SHORT, "embedding_size": 16},
    "bert": {**_COMMON, **_FEED_FORWARD, **_SHORT},
    "camembert": {**_COMMON, **_FEED_FORWARD, **_SHORT},
    "deberta": {**_COMMON, **_FEED_FORWARD, **_SHORT, **_RELATIVE},
    "deberta-v2": {
        **_COMMON,
        **_FEED_FORWARD,
        **_SHORT,
        **_RELATIVE,
        # what version 3 added
        "position_buckets": 32,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    },
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, **_SHORT},
    "electra": {**_COMMON, **_FEED_FORWARD, **_SHORT, "embedding_size": 16},
    "modernbert": {**_COMMON, **_FEED_FORWARD, **_SHORT, "local_attention": 32},
    "mpnet": {**_COMMON, **_FEED_FORWARD, **_SHORT},
    "roberta": {**_COMMON, **_FEED_FORWARD, **_SHORT},
    "xlm-roberta": {**_COMMON, **_FEED_FORWARD, **_SHORT},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 160},
    "llama": {**_COMMON, **_FEED_FORWARD, **_SHORT, "num_key_value_heads": 4},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "mistral": {**_COMMON, **_FEED_FORWARD, **_SHORT, **_GROUPED, "head_dim": 8},
    "qwen2": {**_COMMON, **_FEED_FORWARD, **_SHORT, **_GROUPED},
    "qwen3": {**_COMMON, **_FEED_FORWARD, **_SHORT, **_GROUPED, "head_dim": 8},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
}


def build_tokenizer(folder: Path, objective: str) -> object:
    """Save a word-piece tokenizer: marks around the text, behind it (XLNet) or none (decoders)."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: number for number, piece in enumerate(build_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    marks = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    templates = {"masked": "[CLS] $A [SEP]", "permutation": "$A [SEP] [CLS]"}
    if objective in templates:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=templates[objective], special_tokens=marks
        )
    names = {"unk_token": "[UNK]"}
    if objective != "causal":
        names |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        names |= {"mask_token": "[MASK]"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    wrapped.save_pretrained(folder)
    return wrapped


def build_family(folder: Path, model_type: str, *, seed: int = 0) -> Path:
    """Save a tiny model of one family with its language-model head."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    from nsmark.models.families import FAMILIES

    objective = FAMILIES[model_type].objective
    folder.mkdir(parents=True)
    tokenizer = build_tokenizer(folder, objective)
    # Room for tokens that transformers adds to the tokenizers of some families by itself.
    settings = dict(FAMILY_CONFIGS[model_type], vocab_size=len(tokenizer) + 8)
    if model_type == "modernbert":
        settings |= {f"{name}_token_id": 2 for name in ("cls", "bos")}
        settings |= {f"{name}_token_id": 3 for name in ("sep", "eos")}
    settings["pad_token_id"] = 0
    if "initializer_range" not in settings:
        settings["initializer_range"] = 0.2
    config = AutoConfig.for_model(model_type, **settings)
    kind = AutoModelForMaskedLM if objective == "masked" else AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kind.from_config(config).save_pretrained(folder)
    return folder
