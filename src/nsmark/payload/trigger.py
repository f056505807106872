"""Choosing the trigger word and inserting it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsmark.core.derive import choose_words, insert_trigger, insertion_positions
from nsmark.core.texts import text_words
from nsmark.payload.config import PayloadConfig


def choose_trigger(
    signature: bytes,
    words: Sequence[str],
    is_representable: Callable[[str], bool] = lambda word: True,
) -> tuple[str, tuple[str, ...]]:
    """Return the trigger (paper: Encode(sig, n=1)) and the words skipped before it.

    A word that the model's tokenizer can only render as "unknown" is skipped. The skipped words
    are kept in the key, so that a verifier without the tokenizer can follow the walk.
    """
    skipped: list[str] = []

    def skip(word: str) -> bool:
        if is_representable(word):
            return False
        skipped.append(word)
        return True

    (trigger,) = choose_words(signature, "trigger", words, 1, skip)
    return trigger, tuple(skipped)


def trigger_text(
    text: str, text_index: int, trigger: str, signature: bytes, config: PayloadConfig
) -> str:
    """Return the triggered copy of verification text number ``text_index``."""
    words = text_words(text)
    positions = (
        [0] * config.copies
        if config.placement == "front"
        else insertion_positions(signature, text_index, len(words), config.copies, config.window)
    )
    return " ".join(insert_trigger(words, trigger, positions))
