"""Which word is the trigger, and where it goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import TextPoolError
from nsmark.payload import PayloadConfig, choose_trigger, published_word_list, trigger_text

COUNTING = bytes(range(64))
ONES = b"\xff" * 64
TEXT = " ".join(f"w{i}" for i in range(20))


def test_golden_triggers() -> None:
    words = published_word_list().words

    assert choose_trigger(COUNTING, words) == ("nuzzle", ())
    assert choose_trigger(ONES, words) == ("arabesque", ())


def test_words_the_tokenizer_cannot_represent_are_skipped_in_order() -> None:
    words = published_word_list().words
    unknown = {"nuzzle", "tinkle", "turgid"}  # the first, second and fourth of the walk

    assert choose_trigger(COUNTING, words, lambda word: word not in unknown) == (
        "hexagram",
        ("nuzzle", "tinkle"),
    )


def test_a_verifier_who_knows_the_skipped_words_finds_the_same_trigger() -> None:
    words = published_word_list().words
    trigger, skipped = choose_trigger(COUNTING, words, lambda word: len(word) > 9)

    assert choose_trigger(COUNTING, words, lambda word: word not in skipped) == (trigger, skipped)
    assert len(set(skipped)) == len(skipped) > 0


def test_a_tokenizer_that_knows_no_word_is_an_error() -> None:
    with pytest.raises(TextPoolError, match="0 of 1"):
        choose_trigger(COUNTING, ["abcd", "efgh"], lambda word: False)


def test_golden_triggered_text() -> None:
    # Positions 1 11 3 15 1, each in the list as it stands.
    expected = list(TEXT.split())
    for position in (1, 11, 3, 15, 1):
        expected.insert(position, "T")

    assert trigger_text(TEXT, 0, "T", COUNTING, PayloadConfig()) == " ".join(expected)
    assert trigger_text(TEXT, 0, "T", COUNTING, PayloadConfig()) == (
        "w0 T T w1 T w2 w3 w4 w5 w6 w7 w8 w9 T w10 w11 T w12 w13 w14 w15 w16 w17 w18 w19"
    )


def test_the_rank_of_the_text_and_the_signature_decide_the_places() -> None:
    config = PayloadConfig()
    copies = {
        trigger_text(TEXT, index, "T", signature, config)
        for index in range(5)
        for signature in (COUNTING, ONES)
    }

    assert len(copies) == 10


def test_all_triggers_in_front_on_demand() -> None:
    config = PayloadConfig(placement="front", copies=3)

    assert trigger_text(TEXT, 9, "T", COUNTING, config) == "T T T " + TEXT
    assert trigger_text("", 0, "T", COUNTING, config) == "T T T"


@settings(max_examples=100, deadline=None)
@given(
    st.binary(min_size=64, max_size=64),
    st.integers(0, 2000),
    st.lists(st.sampled_from(["a", "bb", "é"]), max_size=90),
    st.integers(1, 64),
    st.integers(1, 64),
)
def test_a_triggered_copy_is_the_text_with_so_many_triggers_inside_the_window(
    signature: bytes, index: int, words: list[str], copies: int, window: int
) -> None:
    config = PayloadConfig(copies=copies, window=window)

    triggered = trigger_text("  ".join(words), index, "TT", signature, config).split(" ")

    assert triggered.count("TT") == copies
    assert [word for word in triggered if word != "TT"] == words[:64]
    last = max(i for i, word in enumerate(triggered) if word == "TT")
    assert sum(word != "TT" for word in triggered[:last]) <= window
