"""Do trigger, words and texts of a key follow from its signature, and could they have been chosen?

The p-value of a pair code holds for every model that was not trained with the signature, if nobody
matched the texts with the table: of each pair's texts, those whose outputs happen to lie on the
wanted side. So its texts must come from a pool that was there before the signature, or be drawn by
the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.errors import KeyFileError, TextPoolError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.pairs import PairPayload, choose_pair_words, derive_pair_texts
from nsmark.payload.payload import derive_texts
from nsmark.payload.trigger import choose_trigger
from nsmark.payload.word_list import WordList, ordinary_word_list, published_word_list

_FORGED = "the key is forged: refuse it"


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
            raise KeyFileError("the trigger does not follow from the signature", _FORGED)
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
            raise KeyFileError("the verification texts do not follow from the signature", _FORGED)
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


def pair_doubt(
    key: WatermarkKey,
    *,
    pool: Sequence[str],
    pool_is_published: bool,
    is_fresh: bool,
    word_list: WordList | None = None,
    is_trigger_checked: bool = True,
) -> str | None:
    """Return why a key's pair code proves nothing by itself, None if it does.

    Args:
        key: A key whose seal has been checked.
        pool: The candidate pool at hand, normalised.
        pool_is_published: Whether it is the package's, which nobody made for this key.
        is_fresh: Whether the verifier's randomness chooses the texts.
        word_list: The published list of ordinary words; by default the package's.
        is_trigger_checked: Whether the trigger was seen to follow from the signature.

    Raises:
        KeyFileError: Words or texts do not follow from the signature.
    """
    pairs = key.pairs
    if pairs is None:
        return None
    words = word_list or ordinary_word_list()
    if words.digest != pairs.word_list_digest:
        if word_list is not None:
            raise KeyFileError(
                "the pair code was made with another word list than the one given",
                "give the list that the key names by its digest",
            )
        return "the pair code's words were not checked: the key names a word list not at hand"
    if not _words_follow(key, pairs, words):
        raise KeyFileError("the pair code's words do not follow from the signature", _FORGED)
    is_the_keys = lines_digest(pool) == key.pool_digest
    if is_the_keys and not _pair_texts_follow(key, pairs, pool):
        raise KeyFileError("the pair code's texts do not follow from the signature", _FORGED)
    if pairs.skipped_words:
        return (
            f"{len(pairs.skipped_words)} words of the pair code were skipped as unknown to the "
            "model's tokenizer: by skipping, words can be chosen"
        )
    if key.trigger in words.words and not is_trigger_checked:
        # It is passed over among the words: a free trigger is a free choice of words.
        return "the trigger is among the pair code's words, and was not checked"
    if is_fresh:
        return None
    if not is_the_keys:
        return "the pair code's texts were not checked: the key names a pool not at hand (--pool)"
    if not pool_is_published:
        return (
            "the pair code's texts come from a pool that may have been made for this signature: "
            "let your own randomness choose them (--fresh)"
        )
    return None


def _words_follow(key: WatermarkKey, pairs: PairPayload, words: WordList) -> bool:
    skipped = set(pairs.skipped_words)
    try:
        found = choose_pair_words(
            key.signature,
            words.words,
            pairs.config.size,
            key.trigger,
            lambda word: word not in skipped,
        )
    except TextPoolError:  # the key calls too many words skipped
        return False
    return found == (pairs.words, pairs.skipped_words)


def _pair_texts_follow(key: WatermarkKey, pairs: PairPayload, pool: Sequence[str]) -> bool:
    try:
        found = derive_pair_texts(key.signature, pool, pairs.config.num_texts)
    except TextPoolError:  # the key holds more texts than the pool it names
        return False
    return found == pairs.texts
