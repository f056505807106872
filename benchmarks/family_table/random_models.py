"""Models with random weights, in the shape that a row or a scale asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from family_table.run import Run
from family_table.scales import SCALES, Scale
from family_table.seeds import SEED
from family_table.tokenizer_training import train_tokenizer
from nsmark.models.encoder import Encoder
from nsmark.models.families import FAMILIES
from nsmark.models.folder import ModelFolder
from nsmark.models.quiet import quiet_transformers


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
