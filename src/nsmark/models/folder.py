"""What a model folder is, read from its JSON files alone: no weights, no torch, no code.

Two kinds of folder are known: ``hf`` (a transformers checkpoint: ``config.json``) and ``st``
(sentence-transformers: ``modules.json`` names what follows the transformer). Only modules whose
meaning we know are accepted, and only JSON and safetensors files are ever opened.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nsmark.errors import ModelError, NsmarkError
from nsmark.files import read_bounded

FolderKind = Literal["hf", "st"]
POOLINGS = ("first", "last", "mean", "max")

_MAX_JSON_BYTES = 8 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024 * 1024
POOLING_FLAGS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A linear layer of a sentence-transformers folder, by its sub-folder."""

    path: str
    in_features: int
    out_features: int
    has_bias: bool


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """How to read a model folder's outputs."""

    path: Path
    kind: FolderKind
    model_type: str
    """The transformer family, such as ``bert``."""
    transformer_path: Path
    pooling: str | None
    """The folder's own pooling; None where it does not say (kind ``hf``)."""
    steps: tuple[str | DenseLayer, ...]
    """What follows the pooling, in order: ``"normalise"`` or a dense layer."""
    max_length: int | None
    """The folder's own limit in tokens."""
    do_lower_case: bool = False
    """Whether texts are put in lower case before they are tokenised."""

    @property
    def normalises(self) -> bool:
        """Whether the outputs are of unit length by the model's own doing."""
        return bool(self.steps) and self.steps[-1] == "normalise"


def read_json(path: Path) -> Any:
    """Read a small JSON file of a model folder."""
    try:
        return json.loads(read_bounded(path, _MAX_JSON_BYTES, "model file"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} is not valid JSON", "the model folder is damaged") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a small JSON file that must hold an object."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise ModelError(f"{path.name} holds no JSON object", "the model folder is damaged")
    return document


def describe_folder(path: Path, *, ignore_modules: bool = False) -> ModelFolder:
    """Look at a folder and say what it is.

    Raises:
        ModelError: It is no model folder, or holds a module we do not know.
    """
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise ModelError(f"{path} {problem}", "give the folder of a saved model")
    if not (path / "config.json").is_file() and (path / "model" / "config.json").is_file():
        path = path / "model"  # the folder that embed wrote it into
    if (path / "modules.json").is_file() and not ignore_modules:
        return _describe_sentence_transformer(path)
    return ModelFolder(path, "hf", _model_type(path), path, None, (), None)


def _model_type(path: Path) -> str:
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} holds no model: there is no config.json",
            "give a folder saved with save_pretrained or by sentence-transformers",
        )
    model_type = read_json_object(path / "config.json").get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(
            f"config.json in {path} names no model_type", "the model folder is damaged"
        )
    return model_type


def has_classifier_head(folder: ModelFolder) -> bool:
    """Return whether a checkpoint says that it is a classifier or reward model over texts."""
    if folder.kind != "hf":
        return False
    names = read_json_object(folder.path / "config.json").get("architectures")
    return isinstance(names, list) and any(
        str(name).endswith("ForSequenceClassification") for name in names
    )


def _describe_sentence_transformer(path: Path) -> ModelFolder:
    modules = read_json(path / "modules.json")
    try:
        entries = [(str(m["type"]).rsplit(".", 1)[-1], str(m["path"])) for m in modules]
    except (TypeError, KeyError) as error:
        raise ModelError("modules.json is malformed", "the model folder is damaged") from error
    if [name for name, _ in entries[:2]] != ["Transformer", "Pooling"]:
        raise ModelError(
            "the folder's first modules are not a Transformer and a Pooling",
            "nsmark opens sentence-transformers folders of that form",
        )
    transformer = _inside(path, entries[0][1])
    steps: list[str | DenseLayer] = []
    for name, where in entries[2:]:
        if name == "Normalize":
            steps.append("normalise")
        elif name == "Dense":
            steps.append(_describe_dense(_inside(path, where), where))
        else:
            raise ModelError(
                f"module {name[:40]!r} of the folder is unknown",
                "known modules: Transformer, Pooling, Dense, Normalize",
            )
    settings_file = transformer / "sentence_bert_config.json"
    settings = read_json_object(settings_file) if settings_file.is_file() else {}
    limit = settings.get("max_seq_length")
    return ModelFolder(
        path,
        "st",
        _model_type(transformer),
        transformer,
        _describe_pooling(_inside(path, entries[1][1])),
        tuple(steps),
        limit if type(limit) is int and limit > 0 else None,
        settings.get("do_lower_case") is True,
    )


def _inside(root: Path, relative: str) -> Path:
    """Return a sub-folder, refusing paths that lead out of the model folder."""
    # A null byte names no file, and resolve() would stumble over it.
    if "\0" in relative or not (root / relative).resolve().is_relative_to(root.resolve()):
        raise ModelError(
            f"modules.json points outside the folder: {relative[:80]!r}", "do not trust this model"
        )
    return root / relative


def _describe_pooling(path: Path) -> str:
    config = read_json_object(path / "config.json")
    if "pooling_mode" in config:
        chosen = [_POOLING_NAMES.get(str(config["pooling_mode"]), "")]
    else:
        flags = [key for key in config if key.startswith("pooling_mode_") and config[key] is True]
        chosen = [POOLING_FLAGS.get(flag, "") for flag in flags]
    if len(chosen) != 1 or not chosen[0]:
        raise ModelError(
            "the folder's pooling is none of first, last, mean, max",
            "combined and weighted poolings are not supported",
        )
    return chosen[0]


def _describe_dense(path: Path, where: str) -> DenseLayer:
    config = read_json_object(path / "config.json")
    activation = str(config.get("activation_function", "")).rsplit(".", 1)[-1]
    sizes = [s for s in (config.get("in_features"), config.get("out_features")) if type(s) is int]
    if activation != "Identity" or len(sizes) != 2 or not all(0 < s <= 65536 for s in sizes):
        raise ModelError(
            f"the dense layer in {where!r} is not a plain linear map",
            "only Dense modules with an Identity activation are supported",
        )
    return DenseLayer(where, sizes[0], sizes[1], bool(config.get("bias", True)))


def model_digest(path: Path) -> str:
    """Return the digest of all tensors of a model folder, whatever their order or files.

    SHA-256 over the sorted (name, dtype, shape, SHA-256 of bytes), each part length-prefixed;
    tensors in a sub-folder are named ``sub-folder/name``.
    """
    rows = []
    for file in sorted(path.rglob("*.safetensors")):
        prefix = "" if file.parent == path else file.parent.relative_to(path).as_posix() + "/"
        rows.extend(_tensor_rows(file, prefix))
    if not rows:
        raise ModelError(
            f"{path} holds no safetensors weights", "save the model with safetensors first"
        )
    digest = hashlib.sha256()
    for row in sorted(rows):
        for part in row:
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _tensor_rows(file: Path, prefix: str) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Hash every tensor of a file, reading it in pieces: weights can be larger than memory."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise ValueError("header size")
            content = stream.read(length)
            if len(content) != length:
                raise ValueError("truncated")
            header = json.loads(content)
            header.pop("__metadata__", None)
            rows = []
            for name, info in header.items():
                begin, end = info["data_offsets"]
                shape = json.dumps(info["shape"], separators=(",", ":"))
                stream.seek(8 + length + begin)
                digest = _hash_exactly(stream, end - begin)
                rows.append(
                    ((prefix + name).encode(), str(info["dtype"]).encode(), shape.encode(), digest)
                )
            return rows
    except NsmarkError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{file.name} is no valid safetensors file", "the model folder is damaged"
        ) from error


def _hash_exactly(stream: Any, count: int) -> bytes:
    digest = hashlib.sha256()
    while count > 0:
        piece = stream.read(min(count, 1 << 20))
        if not piece:
            raise ValueError("truncated")
        digest.update(piece)
        count -= len(piece)
    return digest.digest()
