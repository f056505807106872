"""Opening model folders: safetensors only, no code from the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from nsmark.errors import ConfigError, ModelError
from nsmark.models.encoder import Encoder
from nsmark.models.families import FAMILIES, UNKNOWN_FAMILY, Family
from nsmark.models.folder import POOLINGS, describe_folder, read_json, read_json_object
from nsmark.models.hub import find_folder
from nsmark.models.quiet import quiet_transformers
from nsmark.models.tokenizer import first_line, load_tokenizer

Purpose = Literal["measure", "train"]


def open_encoder(
    model: str | Path,
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    max_length: int = 128,
    device: str = "auto",
    purpose: Purpose = "measure",
    dtype: Literal["float32", "stored"] = "float32",
    ignore_modules: bool = False,
) -> Encoder:
    """Open a model folder (or a hub name that transformers can resolve).

    Args:
        model: Folder, or a name such as ``bert-base-uncased`` where a hub can be reached.
        pooling: ``first``, ``last``, ``mean`` or ``max``; by default the folder's own, else the
            position that the family is read at.
        normalise: Scale outputs to unit length; by default what the folder does.
        max_length: Tokens of a text; the folder's own limit counts if it is smaller.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        purpose: ``train`` keeps a trained language-model head if the checkpoint has one.
        dtype: Of the weights: float32, or as the folder stores them.
        ignore_modules: Read a sentence-transformers folder as the bare transformer in it.

    Raises:
        ModelError: No model, damaged, or of a family that is not known.
    """
    folder = describe_folder(find_folder(model), ignore_modules=ignore_modules)
    if pooling is not None and pooling not in POOLINGS:
        raise ConfigError("pooling", pooling, f"must be one of {', '.join(POOLINGS)}")
    if max_length < 1:
        raise ConfigError("max_length", max_length, "must be at least 1")
    family = FAMILIES.get(folder.model_type, UNKNOWN_FAMILY)
    if purpose == "train" and folder.model_type not in FAMILIES:
        raise ModelError(
            f"models of family {folder.model_type!r} cannot be watermarked yet",
            f"known: {', '.join(sorted(FAMILIES))}; add a row to nsmark/models/families.py",
        )
    check_shards(folder.transformer_path)
    with quiet_transformers():
        tokenizer = load_tokenizer(folder.transformer_path)
        network, has_head = _load_network(
            folder.transformer_path,
            family,
            purpose,
            torch.float32 if dtype == "float32" else "auto",
        )
    if has_head and family.objective == "masked" and tokenizer.mask_token_id is None:
        raise ModelError(
            "the tokenizer has no mask token, which the model's own loss needs",
            "give a folder with the tokenizer that the model was trained with",
        )
    limits = [max_length, folder.max_length, num_positions(network)]
    encoder = Encoder(
        network,
        tokenizer,
        folder,
        pooling=pooling or folder.pooling or family.pooling,
        normalise=folder.normalises if normalise is None else normalise,
        max_length=min(limit for limit in limits if limit),
        has_lm_head=has_head,
    )
    return encoder.to(resolve_device(device)).eval()


def resolve_device(device: str) -> torch.device:
    """Return the device meant by ``auto`` or a name, refusing one that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.zeros(1, device=resolved).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError("device", device, "is not available here") from error
    return resolved


def _load_network(
    path: Path, family: Family, purpose: Purpose, dtype: torch.dtype | str
) -> tuple[Any, bool]:
    """Load the weights, with the language-model head if it was trained; never from pickle files."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    options: dict[str, Any] = {
        "local_files_only": True,
        "trust_remote_code": False,
        "use_safetensors": True,
        "dtype": dtype,
        "output_loading_info": True,
    }
    try:
        if purpose == "train" and _stores_lm_head(path):
            # XLNet's head, too, goes by the name of a causal one.
            kind = AutoModelForMaskedLM if family.objective == "masked" else AutoModelForCausalLM
            network, info = kind.from_pretrained(path, **options)
            if not info["missing_keys"]:
                return network, True
        network, info = AutoModel.from_pretrained(path, **options)
    except Exception as error:  # see above
        raise ModelError(f"the model in {path} cannot be opened", first_line(error)) from error
    # A pooler nobody reads may be absent; anything else missing would be random weights.
    missing = [key for key in info["missing_keys"] if not key.startswith("pooler.")]
    if len(missing) < len(info["missing_keys"]):
        network.pooler = None  # not random weights that would be saved with the model
    if missing:
        raise ModelError(
            f"the model in {path} lacks {len(missing)} weights, such as {missing[0]}",
            "the folder is incomplete or of another architecture than its config.json says",
        )
    return network, False


def check_shards(path: Path) -> None:
    """Refuse a list of weight files that leads out of the folder."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        return
    weights = read_json_object(index).get("weight_map")
    names = set(map(str, weights.values())) if isinstance(weights, dict) else {"/"}
    if any(Path(name).name != name for name in names):
        raise ModelError(f"{index.name} names files outside the folder", "do not trust this model")


def num_positions(network: Any) -> int:
    """Return for how many tokens the model has positions; 0 where it does not say.

    RoBERTa and its kin count positions from their padding index on, so some are never used.
    """
    positions = max(0, int(getattr(network.config, "max_position_embeddings", 0) or 0))
    table = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    padding_index = getattr(table, "padding_idx", None)
    return positions if padding_index is None else positions - padding_index - 1


def _stores_lm_head(path: Path) -> bool:
    architectures = read_json(path / "config.json").get("architectures") or []
    marks = ("MaskedLM", "PreTraining", "CausalLM", "LMHead")
    return any(mark in str(name) for name in architectures for mark in marks)
