"""Which models the table holds, and how each is made and marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from family_table.tokenizer_kinds import (
    BERT,
    BERT_BYTES,
    BERT_UNIGRAM,
    GPT2,
    LLAMA,
    PADDED,
    ROBERTA,
    XLNET,
    TokenizerKind,
)
from nsmark.models.families import FAMILIES

# Small models learn the mark at rates at which they were pretrained, not fine-tuned: tried with
# bert and gpt2 on a CPU. Ten times the preset's rate for those that are read at their first token
# or behind the text, four times for those that are read at their last word.
READ_AT_A_MARK = {"model_learning_rate": 5e-4, "max_steps": 1000, "cooldown_steps": 200}
READ_AT_A_WORD = READ_AT_A_MARK | {"model_learning_rate": 2e-4}
# The language-model loss of random weights falls as fast as it can and takes the outputs along; a
# hundredth of it costs the same time and lets them be.
RANDOM_WEIGHTS = {"language_weight": 0.01, "warmup_steps": 50, "max_steps": 1000}


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
