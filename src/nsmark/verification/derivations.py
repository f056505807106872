"""Do trigger and texts of a key really follow from its signature?"""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.errors import KeyFileError, TextPoolError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.payload import derive_texts
from nsmark.payload.trigger import choose_trigger
from nsmark.payload.word_list import WordList, published_word_list


def check_derivations(
    key: WatermarkKey,
    *,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
) -> list[str]:
    """Recompute what the signature determines and refuse a key that holds something else.

    Args:
        key: A key whose seal has been checked.
        pool: The published candidate pool, normalised; by default the built-in one is tried.
        word_list: The published word list; by default the one of the package.

    Returns:
        What could not be checked, in sentences: the key names a pool or word list that is not
        at hand.

    Raises:
        KeyFileError: Trigger or texts do not follow from the signature.
    """
    unchecked = []
    words = word_list or published_word_list()
    if words.digest == key.word_list_digest:
        if not _trigger_follows(key, words):
            raise KeyFileError(
                "the trigger does not follow from the signature", "the key is forged: refuse it"
            )
        if key.skipped_words:
            unchecked.append(
                f"{len(key.skipped_words)} words were skipped as unknown to the model's tokenizer; "
                "without that tokenizer this was not checked"
            )
    elif word_list is not None:
        raise _other("word list")
    else:
        unchecked.append("the trigger was not checked: the key names a word list not at hand")
    texts = pool if pool is not None else pool_texts()
    if lines_digest(texts) == key.pool_digest:
        if not _texts_follow(key, texts):
            raise KeyFileError(
                "the verification texts do not follow from the signature",
                "the key is forged: refuse it",
            )
    elif pool is not None:
        raise _other("pool")
    else:
        unchecked.append("the texts were not checked: the key names a pool not at hand (--pool)")
    return unchecked


def _trigger_follows(key: WatermarkKey, words: WordList) -> bool:
    skipped = set(key.skipped_words)
    try:
        found = choose_trigger(key.signature, words.words, lambda word: word not in skipped)
    except TextPoolError:  # the key calls every word of the list skipped
        return False
    return found == (key.trigger, key.skipped_words)


def _texts_follow(key: WatermarkKey, pool: Sequence[str]) -> bool:
    try:
        found = derive_texts(key.signature, pool, key.configuration.num_texts)
    except TextPoolError:  # the key holds more texts than the pool it names
        return False
    return found == key.verification_texts


def _other(what: str) -> KeyFileError:
    return KeyFileError(
        f"the key was made with another {what} than the one given",
        f"give the {what} that the key names by its digest",
    )
