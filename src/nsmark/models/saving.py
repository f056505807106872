"""Writing the small files that make a folder open in sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsmark.errors import NsmarkError
from nsmark.files import write_atomic, write_json
from nsmark.models.folder import POOLING_FLAGS, DenseLayer, ModelFolder, read_json_object

_USAGE_FILE = "config_sentence_transformers.json"
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def keep_generation_config(target: Path, source: ModelFolder) -> None:
    """Give a saved model the generation settings it was opened with: marking changes none."""
    name = "generation_config.json"
    (target / name).unlink(missing_ok=True)
    if (source.transformer_path / name).is_file():
        write_json(target / name, read_json_object(source.transformer_path / name))


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
    limit = {"max_seq_length": source.max_length} if source.max_length else {}
    if limit or source.do_lower_case:
        write_json(
            target / "sentence_bert_config.json",
            {**limit, "do_lower_case": source.do_lower_case},
        )
    usage = usage_settings(source)
    if usage:
        write_json(target / _USAGE_FILE, usage)


def usage_settings(source: ModelFolder) -> dict[str, Any]:
    """Return what a sentence-transformers folder says on how its model is to be used.

    That is its prompts and how outputs are compared. What is damaged, or would keep the folder
    from opening, is left out: no reason to lose a trained model.
    """
    path = source.path / _USAGE_FILE
    if source.kind != "st" or not path.is_file():
        return {}
    try:
        found = read_json_object(path)
    except NsmarkError:
        return {}
    entries = found.get("prompts")
    prompts = {
        name: text
        for name, text in (entries.items() if isinstance(entries, dict) else ())
        if _is_text(name) and _is_text(text)
    }
    default, similarity = found.get("default_prompt_name"), found.get("similarity_fn_name")
    usage: dict[str, Any] = {"prompts": prompts} if prompts else {}
    # sentence-transformers opens no folder whose default prompt is not among its prompts.
    if isinstance(default, str) and default in prompts:
        usage["default_prompt_name"] = default
    if similarity in _SIMILARITIES:
        usage["similarity_fn_name"] = similarity
    return usage


def _is_text(value: object) -> bool:
    """Return whether this is a string of whole characters: JSON can hold half of a pair."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode("utf-8") == value


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir()
    write_json(folder / "config.json", config)
