"""The verification set and the whole payload of a signature."""

import dataclasses
import hashlib

import pytest

from nsmark.core import select_indices, watermark_vector
from nsmark.errors import TextPoolError
from nsmark.payload import (
    PayloadConfig,
    WatermarkPayload,
    derive_payload,
    published_word_list,
    trigger_text,
)
from nsmark.payload.payload import derive_texts

COUNTING = bytes(range(64))
POOL = [f"text number {i}" for i in range(1000)]


def derived(**changes) -> WatermarkPayload:
    settings = {
        "config": PayloadConfig(num_bits=16),
        "word_list": published_word_list(),
        "pool": POOL,
        "num_texts": 8,
    }
    return derive_payload(COUNTING, **{**settings, **changes})


def test_golden_payload() -> None:
    payload = derived()

    assert payload.trigger == "nuzzle"
    assert payload.skipped_words == ()
    assert payload.verification_texts == tuple(
        f"text number {i}" for i in (343, 566, 57, 413, 365, 311, 473, 791)
    )
    assert payload.pool_digest == hashlib.sha256("\n".join(POOL).encode()).hexdigest()
    assert payload.word_list_digest == published_word_list().digest
    assert payload.watermark_vector.tolist() == watermark_vector(COUNTING, 16, 3).tolist()


def test_deriving_twice_gives_the_same_and_another_signature_something_else() -> None:
    other = derive_payload(
        b"\xff" * 64,
        config=PayloadConfig(num_bits=16),
        word_list=published_word_list(),
        pool=POOL,
        num_texts=8,
    )

    assert derived() == derived()
    assert other.trigger == "arabesque"
    assert other.verification_texts[:2] == ("text number 997", "text number 413")


def test_triggered_texts_follow_the_rank_among_the_chosen_not_the_place_in_the_pool() -> None:
    payload = derived()

    assert payload.triggered_texts() == [
        trigger_text(text, rank, "nuzzle", COUNTING, payload.config)
        for rank, text in enumerate(payload.verification_texts)
    ]
    # Positions of text 0 with three words, by SHA-256 alone.
    seed = hashlib.sha256(b"nsmark/v1/insert\x00" + COUNTING).digest()
    words = payload.verification_texts[0].split()
    for i in range(5):
        digest = hashlib.sha256(seed + bytes(4) + i.to_bytes(4, "big")).digest()
        words.insert(int.from_bytes(digest[:8], "big") % (3 + i + 1), "nuzzle")
    assert payload.triggered_texts()[0] == " ".join(words)


def test_pools_are_normalised_and_emptied_of_blanks_before_they_are_numbered() -> None:
    messy = [f"\t text   number\u00a0{i} \n" for i in range(1000)]
    messy[500:500] = ["", "  ", "\n"]

    assert derived(pool=messy).verification_texts == derived().verification_texts
    assert derived(pool=messy).pool_digest == derived().pool_digest


def test_texts_are_cut_to_their_first_64_words() -> None:
    pool = [" ".join(f"{i}-{j}" for j in range(70)) for i in range(30)]

    texts = derive_texts(COUNTING, pool, 10)

    assert all(len(text.split()) == 64 for text in texts)
    assert [int(text.split("-")[0]) for text in texts] == select_indices(COUNTING, pool, 10)


def test_every_verification_text_is_another_one() -> None:
    pool = [f"text {i % 40}" for i in range(300)]

    assert len(set(derived(pool=pool, num_texts=40).verification_texts)) == 40
    with pytest.raises(TextPoolError, match="40 distinct texts, 41"):
        derived(pool=pool, num_texts=41)


@pytest.mark.parametrize("pool", [[], ["", " \t"]])
def test_an_empty_pool_is_an_error_that_counts(pool: list[str]) -> None:
    with pytest.raises(TextPoolError, match="0 distinct"):
        derived(pool=pool)


def test_skipped_words_are_kept_for_verifiers_without_the_tokenizer() -> None:
    payload = derived(is_representable=lambda word: word != "nuzzle")

    assert payload.trigger == "tinkle"
    assert payload.skipped_words == ("nuzzle",)


def test_the_secrets_of_a_payload_are_not_printed() -> None:
    payload = derived()

    assert "nuzzle" not in repr(payload)
    assert "text number" not in repr(payload)
    assert repr(COUNTING)[2:20] not in repr(payload)


def test_a_payload_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        derived().trigger = "other"
