"""Opening the tokenizer of a folder: local files only, no code from the folder; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsmark.errors import ModelError


def load_tokenizer(path: Path) -> Any:
    """Return the tokenizer that a folder holds.

    Raises:
        ModelError: There is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds, all meaning the same here
        raise ModelError(f"the tokenizer in {path} cannot be opened", first_line(error)) from error


def first_line(error: Exception) -> str:
    """Return what another library says, as far as it fits a hint."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
