"""The pair code of a signature, against the SPEC's words written down a second time."""

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, TextPoolError
from nsmark.payload import (
    PairConfig,
    PayloadConfig,
    derive_pairs,
    derive_payload,
    ordinary_word_list,
    published_word_list,
)
from nsmark.payload.pairs import choose_pair_words, derive_pair_texts, insert_pair

COUNTING = bytes(range(64))
ONES = b"\xff" * 64
POOL = [f"text number {i} is about {'many ' * (i % 70)}things" for i in range(700)]
WORDS = ordinary_word_list().words
signatures = st.binary(min_size=64, max_size=64)

# --- SPEC §2 and §3 once more, with nothing but hashlib ---


def spec_chain(label: str, signature: bytes) -> Iterator[int]:
    digest = hashlib.sha256(b"nsmark/v1/" + label.encode() + b"\x00" + signature).digest()
    while True:
        digest = hashlib.sha256(digest).digest()
        yield int.from_bytes(digest, "big")


def spec_words(signature: bytes, words: tuple[str, ...], size: int, trigger: str) -> list[str]:
    chosen: list[str] = []
    for number in spec_chain("pair-words", signature):
        word = words[number % len(words)]
        if word not in chosen and word != trigger:
            chosen.append(word)
        if len(chosen) == 2 * size:
            break
    return chosen


def spec_table(signature: bytes, size: int) -> list[int]:
    """The rows one after the other."""
    octets = hashlib.shake_256(b"nsmark/v1/pair-table\x00" + signature).digest(size * size)
    return [1 if octets[n // 8] & (128 >> n % 8) else -1 for n in range(size * size)]


def spec_base_texts(signature: bytes, pool: list[str], count: int) -> list[str]:
    chosen: list[str] = []
    for number in spec_chain("pair-select", signature):
        text = pool[number % len(pool)]
        if text not in chosen:
            chosen.append(text)
        if len(chosen) == count:
            break
    return [" ".join(text.split()[:64]) for text in chosen]


def spec_pair_text(signature: bytes, t: int, text: str, size: int, words: list[str]) -> str:
    i, j = divmod(t % size**2, size)
    result = text.split()
    reach = min(len(result), 64)
    seed = hashlib.sha256(b"nsmark/v1/pair-insert\x00" + signature).digest()
    for counter, word in enumerate([words[i], words[i], words[size + j], words[size + j]]):
        digest = hashlib.sha256(seed + t.to_bytes(4, "big") + counter.to_bytes(4, "big")).digest()
        result.insert(int.from_bytes(digest[:8], "big") % (reach + counter + 1), word)
    return " ".join(result)


@settings(max_examples=25, deadline=None)
@given(signature=signatures, size=st.integers(4, 12), repeats=st.integers(1, 4))
def test_words_table_and_texts_are_those_of_the_specification(
    signature: bytes, size: int, repeats: int
) -> None:
    config = PairConfig(size=size, repeats=repeats)
    expected = spec_words(signature, WORDS, size, "nuzzle")
    bases = spec_base_texts(signature, POOL, repeats * size**2)

    pairs = derive_pairs(
        signature, config=config, word_list=ordinary_word_list(), pool=POOL, trigger="nuzzle"
    )

    assert list(pairs.words) == expected
    assert pairs.skipped_words == ()
    assert pairs.word_list_digest == ordinary_word_list().digest
    assert list(pairs.texts) == bases
    assert pairs.signs(signature).tolist() == spec_table(signature, size)
    assert pairs.pair_texts(signature) == [
        spec_pair_text(signature, t, text, size, expected) for t, text in enumerate(bases)
    ]
    assert pairs.pair_numbers().tolist() == [t % size**2 for t in range(repeats * size**2)]


@settings(max_examples=50, deadline=None)
@given(signature=signatures, size=st.integers(4, 16), rank=st.integers(0, 31))
def test_the_trigger_is_passed_over_in_silence_wherever_it_stands(
    signature: bytes, size: int, rank: int
) -> None:
    trigger = spec_words(signature, WORDS, 16, "")[rank]

    words, skipped = choose_pair_words(signature, WORDS, size, trigger)

    assert list(words) == spec_words(signature, WORDS, size, trigger)
    assert trigger not in words
    assert skipped == ()


# --- nobody changes them by accident ---


def golden(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize(
    ("signature", "first_words", "words", "table", "texts", "first_text"),
    [
        (
            COUNTING,
            "regions select saved behind",
            "cbd455e9e5f3a6e6c3766d7c509773dd335ccd85e7194be03b4df73ecb7411a0",
            "d8d2f197388a0172d86abc1c78262674e9eed42553bc9f901c197ef52eac5825",
            "7d2a72ffa7ce25c3b61ade776e06a788b97f4531148313e02fb8fba1211f9609",
            "Remember to write the short memoirs regions runway runway next February, regions and "
            "ask Idris about the plot twists.",
        ),
        (
            ONES,
            "questioned primary lives elsewhere",
            "0d6b19592db26f13020e00f02b47a2b58c7007b09e40e3d97b7b31d78e864195",
            "1828774ae1586aa64c2e3df118aec83724ca55921c47632ea8863f086db08f5f",
            "95cf04b2f6384d23431de130dcb058f6a2dea25de0866fc5d9a214eedcf4b433",
            "The question is not where raising drummers play gentle questioned raising melodies, "
            "explained Professor Birchett, but why all the cellists questioned still compose "
            "modern marches all year round.",
        ),
    ],
    ids=["counting", "ones"],
)
def test_golden_pair_codes_of_the_default_size_and_the_built_in_pool(
    signature: bytes, first_words: str, words: str, table: str, texts: str, first_text: str
) -> None:
    payload = derive_payload(
        signature,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=4,
        pair_config=PairConfig(),
    )
    pairs = payload.pairs

    assert pairs is not None
    assert " ".join(pairs.words[:4]) == first_words
    assert len(pairs.words) == 32
    assert golden(list(pairs.words)) == words
    signs = "".join("+" if sign > 0 else "-" for sign in pairs.signs(signature))
    assert golden([signs]) == table
    assert len(payload.pair_texts()) == 1536
    assert golden(payload.pair_texts()) == texts
    assert payload.pair_texts()[0] == first_text


def test_golden_pair_text_by_hand() -> None:
    # Positions 16 21 11 15 (tests/core/test_derive.py), each in the list as it stands.
    text = " ".join(f"w{i}" for i in range(20))
    expected = text.split()
    for position, word in zip((16, 21, 11, 15), ("A", "A", "B", "B"), strict=True):
        expected.insert(position, word)

    assert insert_pair(text, 0, ("A", "B"), COUNTING) == " ".join(expected)


# --- what else must hold ---


@settings(max_examples=60, deadline=None)
@given(
    signature=signatures,
    number=st.integers(0, 2**20),
    words=st.lists(st.sampled_from(["a", "bb", "é"]), max_size=90),
)
def test_taking_the_two_words_out_gives_the_text_back(
    signature: bytes, number: int, words: list[str]
) -> None:
    written = insert_pair("  ".join(words), number, ("AA", "BB"), signature).split(" ")

    assert (written.count("AA"), written.count("BB")) == (2, 2)
    assert [word for word in written if word not in ("AA", "BB")] == words[:64]


def test_every_pair_has_the_same_number_of_texts_and_each_its_own_two_words() -> None:
    pairs = derive_pairs(
        COUNTING,
        config=PairConfig(size=5, repeats=3),
        word_list=ordinary_word_list(),
        pool=POOL,
        trigger="nuzzle",
    )

    assert np.bincount(pairs.pair_numbers()).tolist() == [3] * 25
    assert pairs.pair_numbers(7).tolist() == list(range(7))
    rows, columns = pairs.words[:5], pairs.words[5:]
    assert {pairs.words_of(t) for t in range(25)} == {(a, b) for a in rows for b in columns}
    assert [pairs.words_of(t) for t in range(25, 75)] == 2 * [pairs.words_of(t) for t in range(25)]
    for number, text in enumerate(pairs.pair_texts(COUNTING)):
        # Words of other pairs never come in by the code, only if a text of the pool has them.
        added = list(text.split())
        for word in pairs.texts[number].split():
            added.remove(word)
        first, second = pairs.words_of(number)
        assert sorted(added) == sorted([first, first, second, second])


def test_words_the_tokenizer_cannot_represent_are_skipped_and_named_in_order() -> None:
    walk = spec_words(COUNTING, WORDS, 8, "")
    unknown = {walk[0], walk[3], walk[4]}

    words, skipped = choose_pair_words(COUNTING, WORDS, 5, walk[2], lambda w: w not in unknown)

    assert list(words) == [word for word in walk if word not in {*unknown, walk[2]}][:10]
    assert skipped == (walk[0], walk[3], walk[4])
    # Who knows what was skipped finds the same words, without the tokenizer.
    again = choose_pair_words(COUNTING, WORDS, 5, walk[2], lambda word: word not in skipped)
    assert again == (words, skipped)


def test_the_trigger_is_not_called_skipped_even_where_it_is_unknown() -> None:
    walk = spec_words(COUNTING, WORDS, 4, "")

    words, skipped = choose_pair_words(COUNTING, WORDS, 4, walk[0], lambda word: word != walk[0])

    assert skipped == ()
    assert words[0] == walk[1]


def test_a_list_that_runs_out_of_words_is_an_error_that_counts() -> None:
    with pytest.raises(TextPoolError, match="only 7 of 8"):
        choose_pair_words(COUNTING, WORDS[:8], 4, WORDS[3])
    with pytest.raises(TextPoolError, match="only 0 of 8"):
        choose_pair_words(COUNTING, WORDS, 4, "nuzzle", lambda word: False)


def test_a_pool_too_small_says_how_many_texts_there_are() -> None:
    config = PairConfig(size=4, repeats=2)
    for pool, distinct in ((POOL[:31], 31), (POOL[:20] * 3, 20), ([], 0)):
        with pytest.raises(TextPoolError, match=f"{distinct} distinct texts, 32 are"):
            derive_pairs(
                COUNTING,
                config=config,
                word_list=ordinary_word_list(),
                pool=pool,
                trigger="nuzzle",
            )
    assert len(derive_pair_texts(COUNTING, POOL[:32], 32)) == 32


def test_long_texts_are_cut_before_words_are_inserted_and_repeats_are_passed_over() -> None:
    pool = ["long " * 100 + "end", "long  " * 100 + "end", "short"]

    texts = derive_pair_texts(COUNTING, pool, 2)

    assert sorted(texts) == [" ".join(["long"] * 64), "short"]
    longest = insert_pair("w " * 100, 0, ("A", "B"), COUNTING).split()
    assert len(longest) == 68


@pytest.mark.parametrize(
    "sizes", [{"size": 3}, {"size": 65}, {"size": -4}, {"repeats": 0}, {"repeats": 65}]
)
def test_sizes_out_of_range_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"pair {next(iter(sizes))}"):
        PairConfig(**sizes)


def test_default_and_limiting_sizes() -> None:
    assert (PairConfig().num_pairs, PairConfig().num_texts) == (256, 1536)
    assert PairConfig(size=4, repeats=1).num_texts == 16
    assert PairConfig(size=64, repeats=64).num_texts == 64**3


def test_without_sizes_there_is_no_pair_code() -> None:
    payload = derive_payload(
        COUNTING,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=POOL,
        num_texts=4,
    )

    assert payload.pairs is None
    assert payload.pair_texts() == []


def test_the_pair_code_leaves_trigger_and_texts_alone() -> None:
    common = {
        "config": PayloadConfig(),
        "word_list": published_word_list(),
        "pool": POOL,
        "num_texts": 40,
    }
    without = derive_payload(COUNTING, **common)
    with_one = derive_payload(COUNTING, **common, pair_config=PairConfig(size=4, repeats=2))

    assert with_one.trigger == without.trigger
    assert with_one.verification_texts == without.verification_texts
    # Texts already used are not excluded: the two selections are independent.
    assert derive_pair_texts(COUNTING, POOL, 700)[:32] == with_one.pairs.texts


def test_printing_a_pair_code_shows_neither_words_nor_texts() -> None:
    pairs = derive_pairs(
        COUNTING,
        config=PairConfig(size=4, repeats=1),
        word_list=ordinary_word_list(),
        pool=POOL,
        trigger="nuzzle",
    )

    assert not any(word in repr(pairs) for word in pairs.words)
    assert not any(text in repr(pairs) for text in pairs.texts)
