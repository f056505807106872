"""From a folder or a hub's name to a folder; torch is not needed for it."""

from __future__ import annotations

from pathlib import Path

from nsmark.errors import MissingExtraError, ModelError

_WANTED_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "README.md"]


def find_folder(model: str | Path) -> Path:
    """Return the folder of a model, fetched from a hub if it is a name and not a path.

    Raises:
        ModelError: Neither a folder here nor to be had from a hub.
    """
    path = Path(model)
    if path.exists():
        return path
    if isinstance(model, Path) or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(f"{model} does not exist", "give the folder of a saved model")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    try:
        return Path(snapshot_download(model, allow_patterns=_WANTED_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{model!r} is no folder here and could not be had from a model hub",
            "give a folder, or check the name and the connection",
        ) from error
