"""Writing the small files that make a folder open in sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsmark.files import write_atomic, write_json
from nsmark.models.folder import POOLING_FLAGS, DenseLayer, ModelFolder


def write_sentence_transformer_files(
    target: Path,
    source: ModelFolder,
    pooling: str,
    hidden_size: int,
    dense_weights: Sequence[bytes],
) -> None:
    """Write modules.json and what it names, beside a transformer saved in ``target``.

    Args:
        target: Folder that already holds the transformer.
        source: The folder whose modules are repeated.
        pooling: Which pooling is written.
        hidden_size: Width of the transformer.
        dense_weights: A safetensors file for each dense layer among the source's steps, in order.
    """
    kind = "sentence_transformers.models."
    modules = [("", kind + "Transformer"), ("1_Pooling", kind + "Pooling")]
    flags = {flag: name == pooling for flag, name in POOLING_FLAGS.items()}
    _write_config(target / "1_Pooling", {"word_embedding_dimension": hidden_size, **flags})
    weights = iter(dense_weights)
    for step in source.steps:
        number = len(modules)
        if not isinstance(step, DenseLayer):
            modules.append((f"{number}_Normalize", kind + "Normalize"))
            (target / modules[-1][0]).mkdir()
            continue
        modules.append((f"{number}_Dense", kind + "Dense"))
        _write_config(
            target / modules[-1][0],
            {
                "in_features": step.in_features,
                "out_features": step.out_features,
                "bias": step.has_bias,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
        )
        write_atomic(target / modules[-1][0] / "model.safetensors", next(weights))
    write_json(
        target / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": name}
            for number, (path, name) in enumerate(modules)
        ],
    )
    if source.max_length:
        write_json(
            target / "sentence_bert_config.json",
            {"max_seq_length": source.max_length, "do_lower_case": False},
        )


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir()
    write_json(folder / "config.json", config)
