"""Opening the tokenizer of a folder: local files only, no code from the folder; no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nsmark.errors import ModelError

_NUM_LOOKED_AT = 100
"""Texts that are looked at for words a tokenizer does not know."""


def load_tokenizer(path: Path) -> Any:
    """Return the tokenizer that a folder holds.

    Raises:
        ModelError: There is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises many kinds, all meaning the same here
        raise ModelError(f"the tokenizer in {path} cannot be opened", first_line(error)) from error
    # Of a folder without one transformers makes a tokenizer of special tokens, by itself.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ModelError(
            f"there is no tokenizer in {path}",
            "copy the tokenizer's files that the model was trained with into the folder",
        )
    return tokenizer


def is_representable(tokenizer: Any, word: str) -> bool:
    """Return whether a tokenizer can spell a word without its unknown token."""
    unknown = tokenizer.unk_token_id
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    return bool(ids) and (unknown is None or unknown not in ids)


def require_known_words(texts: Sequence[str], is_known: Callable[[str], bool]) -> None:
    """Refuse a tokenizer that knows less than half of the words it is asked.

    A model that reads unknown words answers the same to all texts, whoever made it.

    Raises:
        ModelError: It is the tokenizer of something else.
    """
    words = {word for text in texts[:_NUM_LOOKED_AT] for word in re.findall(r"\w+", text)}
    known = sum(is_known(word) for word in words)
    if 2 * known < len(words):
        raise ModelError(
            f"the tokenizer knows {known} of the {len(words)} words in the first texts",
            "give a folder with the tokenizer that the model was trained with",
        )


def first_line(error: Exception) -> str:
    """Return what another library says, as far as it fits a hint."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
