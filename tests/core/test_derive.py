"""Golden vectors of every derivation: a failure here breaks every key ever made.

The literals were computed by a separate few lines of hashlib; the reference implementation below
is that program, so that any signature, not only the literals', is checked against it.
"""

import hashlib
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core import (
    insert_trigger,
    insertion_positions,
    pair_table,
    pair_words,
    readout_matrix,
    select_indices,
    signature_bits,
    spreading_code,
    watermark_vector,
)
from nsmark.core.derive import chain, choose_words, seed, stream
from nsmark.errors import ConfigError, TextPoolError
from nsmark.payload import published_word_list

COUNTING = bytes(range(64))
ONES = b"\xff" * 64
SIGNATURES = pytest.mark.parametrize("which", [0, 1], ids=["counting", "ones"])
BOTH = (COUNTING, ONES)
POOL = [f"t{i}" for i in range(1000)]

signatures = st.binary(min_size=64, max_size=64)
labels = st.sampled_from(["bits", "spread", "select", "trigger", "insert", "readout", "pair-words"])


def reference_seed(label: str, signature: bytes) -> bytes:
    return hashlib.sha256(b"nsmark/v1/" + label.encode() + b"\x00" + signature).digest()


def reference_signs(label: str, count: int, signature: bytes) -> str:
    octets = hashlib.shake_256(b"nsmark/v1/" + label.encode() + b"\x00" + signature).digest(count)
    return "".join("+" if bit == "1" else "-" for byte in octets for bit in f"{byte:08b}")[:count]


def reference_chain(label: str, signature: bytes) -> Iterator[int]:
    digest = reference_seed(label, signature)
    while True:
        digest = hashlib.sha256(digest).digest()
        yield int(digest.hex(), 16)


def reference_select(signature: bytes, texts: list[str], count: int, label: str) -> list[int]:
    chosen: dict[str, int] = {}
    for number in reference_chain(label, signature):
        if len(chosen) == count:
            break
        index = number % len(texts)
        chosen.setdefault(" ".join(texts[index].split()), index)
    return list(chosen.values())


def reference_positions(
    signature: bytes, text: int, words: int, copies: int, window: int, label: str
) -> list[int]:
    prefix = reference_seed(label, signature) + text.to_bytes(4, "big")
    numbers = (
        int(hashlib.sha256(prefix + i.to_bytes(4, "big")).hexdigest()[:16], 16)
        for i in range(copies)
    )
    return [n % (min(words, window) + i + 1) for i, n in enumerate(numbers)]


def show(signs: np.ndarray) -> str:
    assert set(signs.reshape(-1).tolist()) <= {-1, 1}
    return "".join("+" if sign > 0 else "-" for sign in signs.reshape(-1))


# Seeds, streams and chains ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "seed_hex", "stream_hex"),
    [
        (
            "bits",
            "f8d3100d31a8d3e1fbb889ea4f6e3f917bd093b14c7e2a2812a5dde76e3eb0fe",
            "2ac3531b03a4164f31c4c88734c66b22",
        ),
        (
            "spread",
            "a2588bf10262ed4595ded304cf7cdd7afe543616ce8044e890a5950949dcf1cb",
            "cbc98c6d255abf67cb3fcb4cf233972e",
        ),
        (
            "select",
            "5636f96ab74f45dbd9a555ae6e348e7f902290e97abf64e29493d9acc3b9dfb5",
            "65d3a4ca6a851a0c0e12f4b3a05a659c",
        ),
        (
            "trigger",
            "3d080421667f92089f6046536d7f5b3d1bcae9ab83a738276a4490365946f363",
            "4f3541e516a2964dbaa267e205daf463",
        ),
        (
            "insert",
            "45c74b4c7c3885aa363224c1bb7e0bfed6a9ab9921920f87399ad042d87afa27",
            "b8585199874f1fc173c2a2df483eed20",
        ),
        (
            "readout",
            "b68ff06b4b697606bff3eb1ff78b62d778cbe99f2add656418fa37801087a201",
            "ec785c8eb28e2524b7709f137af23793",
        ),
        (
            "pair-words",
            "12d23cf581903e219526b7801cd88586b3a9c70061db7b0ea34d550d55c2fc63",
            "7823e22f6359ac183fb09ee9d27e56d4",
        ),
        (
            "pair-table",
            "a1b577bd805249f6d6b557197f087b505a6e80204503419a76b46a41cfd062cc",
            "9ecb79cb308b4472db36a43987278c64",
        ),
        (
            "pair-select",
            "8b914a519396f253a668c41ab6b465ff2e6149840fe03025e7c59e6410847dc3",
            "c84ea2ec60d2b598421be9e558d49a8d",
        ),
        (
            "pair-insert",
            "197d465001e389b6f4a3919243d5ce6326288d43e32f98386349f280cb53210e",
            "cfb9de0a168a1d5e1362eeb4a2d1b5ba",
        ),
    ],
)
def test_seed_and_stream_of_each_purpose(label: str, seed_hex: str, stream_hex: str) -> None:
    assert seed(COUNTING, label).hex() == seed_hex
    assert stream(COUNTING, label, 16).hex() == stream_hex
    assert stream(COUNTING, label, 3).hex() == stream_hex[:6]  # a longer stream only continues


def test_the_chain_starts_with_the_hash_of_the_seed_not_with_the_seed() -> None:
    assert [hex(n) for n in itertools.islice(chain(COUNTING, "select"), 3)] == [
        "0xa432b4101a4e2cd9639a573efbb647b0e704c6c91b25496cb06d30d52b37e77",
        "0x40637da52a11af38457696aa06cbe2294d81dd0c4b59b8be82dbff7f1ab78636",
        "0x9e6a4b3dd7df11ce6486ee84374a8a98785ec7ec3ed414e5ebaa8f6324e874b9",
    ]


@settings(max_examples=50, deadline=None)
@given(signatures, labels, labels)
def test_purposes_are_separated_and_deterministic(signature: bytes, one: str, two: str) -> None:
    assert seed(signature, one) == reference_seed(one, signature)
    assert (seed(signature, one) == seed(signature, two)) == (one == two)
    assert (stream(signature, one, 32) == stream(signature, two, 32)) == (one == two)
    assert next(chain(signature, one)) == next(reference_chain(one, signature))


# Bits, code, readout ------------------------------------------------------------------------


@SIGNATURES
def test_golden_signs(which: int) -> None:
    bits = ("--+-+-+-++----++-+-+--++---++-++", "--+--+++----+-++-++---++++++---+")[which]
    code = ("++--+-++++--+--++---++---++-++-+", "-++-+--++-+-++++-+++------++-+--")[which]
    vector = ("---++++----+++---+-++--+", "+-++---+-+++-++++-+-+---")[which]

    assert show(signature_bits(BOTH[which]))[:32] == bits
    assert show(spreading_code(BOTH[which], 768))[:32] == code
    assert show(watermark_vector(BOTH[which], 8, 3)) == vector


def test_default_lengths_are_the_papers() -> None:
    assert signature_bits(COUNTING).shape == (256,)
    assert watermark_vector(COUNTING).shape == (768,)
    assert signature_bits(COUNTING).dtype == np.int64


@settings(max_examples=50, deadline=None)
@given(signatures, st.integers(1, 70), st.integers(1, 5))
def test_signs_follow_the_stream_and_each_copy_of_a_bit_has_its_own_code(
    signature: bytes, num_bits: int, spread_factor: int
) -> None:
    bits = signature_bits(signature, num_bits)
    code = spreading_code(signature, num_bits * spread_factor)
    vector = watermark_vector(signature, num_bits, spread_factor)

    assert show(bits) == reference_signs("bits", num_bits, signature)
    assert show(code) == reference_signs("spread", num_bits * spread_factor, signature)
    assert vector.shape == (num_bits * spread_factor,)
    assert all(vector[j] == bits[j % num_bits] * code[j] for j in range(len(vector)))


@SIGNATURES
def test_golden_readout(which: int) -> None:
    small = ("+++-++---++++----+", "-+---+-++-+-+++--+")[which]
    digest = (
        "3df41c4423ff3d4800da4e315945d450cb8713c73da0a1f5e0b98ebc41b5fcd8",
        "0bdbfbf1a1c2ca0d98a045f4e08490ace86f7cc32790900745dca98e9b3dabd1",
    )[which]
    large = readout_matrix(BOTH[which], 256, 600)

    assert readout_matrix(BOTH[which], 256, 6).shape == (3, 6)
    assert show(readout_matrix(BOTH[which], 256, 6)) == small
    assert large.shape == (256, 600)
    assert hashlib.sha256(show(large).encode()).hexdigest() == digest


@pytest.mark.parametrize(
    ("num_bits", "output_dim", "rows"), [(256, 384, 192), (256, 768, 256), (16, 9, 4), (1, 2, 1)]
)
def test_the_readout_has_a_row_per_bit_but_no_more_than_half_the_dimensions(
    num_bits: int, output_dim: int, rows: int
) -> None:
    assert readout_matrix(COUNTING, num_bits, output_dim).shape == (rows, output_dim)


@pytest.mark.parametrize("output_dim", [0, 1])
def test_a_readout_of_fewer_than_two_dimensions_is_refused(output_dim: int) -> None:
    with pytest.raises(ConfigError, match="output_dim"):
        readout_matrix(COUNTING, 256, output_dim)


@pytest.mark.parametrize("count", [0, -1])
def test_counts_below_one_are_refused(count: int) -> None:
    for derive in (signature_bits, spreading_code, pair_table):
        with pytest.raises(ConfigError):
            derive(COUNTING, count)
    with pytest.raises(ConfigError, match="spread_factor"):
        watermark_vector(COUNTING, 8, count)
    with pytest.raises(ConfigError, match="size"):
        pair_words(COUNTING, POOL, count)
    with pytest.raises(ConfigError, match="count"):
        select_indices(COUNTING, POOL, count)


# Select -------------------------------------------------------------------------------------


@SIGNATURES
def test_golden_selection_from_a_pool_of_distinct_texts(which: int) -> None:
    expected = (
        [343, 566, 57, 413, 365, 311, 473, 791, 868, 879, 180, 694],
        [997, 413, 620, 241, 902, 63, 480, 389, 299, 302, 803, 702],
    )[which]
    pairs = (
        [638, 601, 14, 415, 649, 913, 349, 936, 604, 989, 706, 622],
        [683, 725, 194, 789, 116, 695, 618, 261, 220, 400, 883, 980],
    )[which]

    assert select_indices(BOTH[which], POOL, 12) == expected
    assert select_indices(BOTH[which], POOL, 12, label="pair-select") == pairs


@SIGNATURES
def test_golden_selection_skips_texts_that_are_the_same_after_normalisation(which: int) -> None:
    pool = [f"t{i % 7}" if i % 2 else f"  t{i % 7} " for i in range(50)]
    expected = ([43, 16, 7, 13, 11, 40, 10], [47, 13, 2, 39, 49, 3, 22])[which]

    assert select_indices(BOTH[which], pool, 7) == expected
    assert sorted(i % 7 for i in expected) == list(range(7))


def test_composed_and_decomposed_spellings_are_one_text() -> None:
    pool = ["caf\u00e9", "cafe\u0301", "tea"]

    assert len(select_indices(COUNTING, pool, 2)) == 2
    with pytest.raises(TextPoolError, match="2 distinct"):
        select_indices(COUNTING, pool, 3)


@SIGNATURES
def test_a_whole_pool_can_be_selected(which: int) -> None:
    expected = ([3, 6, 7, 5, 1, 8, 9, 0, 4, 2], [7, 3, 0, 1, 2, 9, 6, 4, 5, 8])[which]

    assert select_indices(BOTH[which], [f"x{i}" for i in range(10)], 10) == expected


@settings(max_examples=50, deadline=None)
@given(
    signatures,
    st.lists(st.sampled_from(["a", "b ", " b", "c", "d d", "d  d", "e"]), min_size=1, max_size=40),
    st.data(),
)
def test_selected_indices_are_distinct_in_content_and_follow_the_chain(
    signature: bytes, pool: list[str], data: st.DataObject
) -> None:
    distinct = {" ".join(text.split()) for text in pool}
    count = data.draw(st.integers(1, len(distinct)))

    indices = select_indices(signature, pool, count)

    assert indices == reference_select(signature, pool, count, "select")
    assert indices == select_indices(signature, pool, count)
    assert len({" ".join(pool[i].split()) for i in indices}) == count
    assert indices[: count - 1] == (select_indices(signature, pool, count - 1) if count > 1 else [])


@pytest.mark.parametrize(
    ("pool", "distinct"), [([], 0), (["a"], 1), (["a", " a", "b"] * 400, 2), (POOL, 1000)]
)
def test_a_pool_of_too_few_distinct_texts_says_how_many_there_are(
    pool: list[str], distinct: int
) -> None:
    with pytest.raises(TextPoolError, match=rf"{distinct} distinct texts, {distinct + 1} are"):
        select_indices(COUNTING, pool, distinct + 1)


# Words --------------------------------------------------------------------------------------


@SIGNATURES
def test_golden_walk_over_the_published_word_list(which: int) -> None:
    words = published_word_list().words
    expected = (
        ["nuzzle", "tinkle", "hexagram", "turgid"],
        ["arabesque", "nonpareil", "pilaster", "eland"],
    )[which]

    assert choose_words(BOTH[which], "trigger", words, 4) == expected


@SIGNATURES
def test_golden_pair_words(which: int) -> None:
    expected = (
        "whalebone fricassee lissome hovel mignonette louver involute pirouette octavo "
        "taboret birdbath clapboard heronry rhodonite ramekin lilt codicil vireo ginkgo "
        "friable catalpa xylene gimcrack opaline bathyscaphe weaverbird orpine premolar "
        "chalcedony boatswain vervain gibbous ",
        "polestar decant berm knickknack fermata hyperbola waxwing transonic kohlrabi "
        "tollgate dolmen ruthenium sawfly pinnace hayloft toadflax foretop ostinato viburnum "
        "wader eiderdown purlin splay bagatelle fairlead tyro organza hackle redwing lyrebird "
        "presage reconnoiter ",
    )[which].split()

    assert pair_words(BOTH[which], published_word_list().words) == expected
    assert pair_words(BOTH[which], published_word_list().words, 3) == expected[:6]


@SIGNATURES
def test_pair_words_skip_the_trigger_and_words_taken(which: int) -> None:
    # Seven letters: the walk (computed apart) meets the trigger and repeats before it ends.
    letters = "abcdefg"
    trigger, expected = (("d", "fcbaeg"), ("c", "gfbead"))[which]

    assert choose_words(BOTH[which], "trigger", letters, 1) == [trigger]
    assert "".join(pair_words(BOTH[which], letters, 3)) == expected
    with_other_trigger = pair_words(BOTH[which], letters, 3, trigger=expected[0])
    assert expected[0] not in with_other_trigger
    assert trigger in with_other_trigger


@settings(max_examples=50, deadline=None)
@given(signatures, st.integers(1, 12))
def test_pair_words_are_distinct_and_never_the_trigger(signature: bytes, size: int) -> None:
    words = published_word_list().words[:30]

    chosen = pair_words(signature, words, size)

    assert len(set(chosen)) == 2 * size
    assert choose_words(signature, "trigger", words, 1)[0] not in chosen
    assert chosen == pair_words(signature, words, size)


def test_a_word_that_stands_twice_in_a_list_is_taken_once() -> None:
    assert sorted(choose_words(COUNTING, "trigger", "abcabcabc", 3)) == ["a", "b", "c"]


def test_a_word_list_that_runs_out_is_an_error_that_counts() -> None:
    with pytest.raises(TextPoolError, match="only 6 of 8"):
        pair_words(COUNTING, "abcdefg", 4)
    with pytest.raises(TextPoolError, match="only 0 of 1"):
        choose_words(COUNTING, "trigger", [], 1)
    with pytest.raises(TextPoolError, match="only 0 of 1"):
        choose_words(COUNTING, "trigger", "abc", 1, lambda word: True)


@SIGNATURES
def test_golden_pair_table(which: int) -> None:
    rows = (
        "+--++++-++--+-++ -++++--+++--+-++ --++----+---+-++ -+---+---+++--+- ++-++-++--++-++- "
        "+-+--+----+++--+ +----+++--+--+++ +---++---++--+-- ---++++-----+++- --+--+++-++--+++ "
        "--++++-+--+----- --+--++--++----+ +++-+--+--+--++- -+-+-++-+----+-- ++---+--+++-+--+ "
        "+++---+-+---+---",
        "++-+-++++------- -++-----++------ ++--+-++-+-+++-+ +-+++---+-++-++- -+-++-+-+++---++ "
        "+-+++------++++- ++--+++++++--+-+ --++-+---+-+---- ----+-+++----+-- +--------+-+---- "
        "-++++-+++---++-- -+++++-+---+---- +-+---+++-+--+++ +-+-------++---- ++-++-+---+-++-+ "
        "++-++-+--++-----",
    )[which].split()
    table = pair_table(BOTH[which])

    assert table.shape == (16, 16)
    assert [show(row) for row in table] == rows
    assert show(pair_table(BOTH[which], 5)) == "".join(rows)[:25]


# Insertion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "num_words", "counting", "ones"),
    [
        (0, 20, [1, 11, 3, 15, 1], [19, 15, 20, 21, 12]),
        (1, 20, [2, 17, 7, 22, 14], [12, 16, 5, 11, 16]),
        (2, 0, [0, 0, 2, 2, 1], [0, 1, 2, 0, 1]),
        (7, 1, [1, 1, 2, 2, 3], [1, 0, 0, 0, 3]),
        (1499, 64, [54, 2, 0, 37, 36], [37, 50, 49, 39, 5]),
        (3, 200, [49, 49, 44, 45, 51], [1, 7, 59, 14, 16]),
        (0x01020304, 20, [10, 15, 19, 5, 8], [13, 4, 9, 6, 8]),
    ],
)
def test_golden_positions(text: int, num_words: int, counting: list[int], ones: list[int]) -> None:
    assert insertion_positions(COUNTING, text, num_words) == counting
    assert insertion_positions(ONES, text, num_words) == ones


@SIGNATURES
def test_golden_positions_with_other_copies_window_and_label(which: int) -> None:
    windowed = ([2, 1, 2, 6, 2, 5, 3, 6, 3], [1, 0, 1, 6, 3, 4, 7, 7, 9])[which]
    first_pair = ([16, 21, 11, 15], [11, 6, 0, 21])[which]
    last_pair = ([12, 10, 24, 16], [10, 32, 7, 31])[which]
    signature = BOTH[which]

    assert insertion_positions(signature, 5, 100, 9, 4) == windowed
    assert insertion_positions(signature, 0, 20, 4, label="pair-insert") == first_pair
    assert insertion_positions(signature, 1535, 33, 4, label="pair-insert") == last_pair


@settings(max_examples=100, deadline=None)
@given(
    signatures,
    st.integers(0, 2**32 - 1),
    st.integers(0, 100),
    st.integers(0, 8),
    st.integers(1, 64),
    st.sampled_from(["insert", "pair-insert"]),
)
def test_positions_follow_the_hash_and_lie_within_the_text_as_it_stands(
    signature: bytes, text: int, num_words: int, copies: int, window: int, label: str
) -> None:
    positions = insertion_positions(signature, text, num_words, copies, window, label=label)

    assert positions == reference_positions(signature, text, num_words, copies, window, label)
    assert all(0 <= p <= min(num_words, window) + i for i, p in enumerate(positions))


def test_the_first_copies_stay_where_they_are_when_more_are_asked_for() -> None:
    assert insertion_positions(COUNTING, 0, 20, 3) == insertion_positions(COUNTING, 0, 20, 5)[:3]


def test_each_trigger_goes_before_the_word_at_its_position_of_the_list_as_it_stands() -> None:
    words = ["a", "b", "c"]

    assert insert_trigger(words, "T", [0, 0, 5]) == ["T", "T", "a", "b", "c", "T"]
    assert insert_trigger(words, "T", [1, 4]) == ["a", "T", "b", "c", "T"]
    assert insert_trigger(words, "T", [3, 3]) == ["a", "b", "c", "T", "T"]
    assert insert_trigger([], "T", [0, 1]) == ["T", "T"]
    assert insert_trigger(words, "T", []) == words
    assert words == ["a", "b", "c"]


@settings(max_examples=100, deadline=None)
@given(signatures, st.lists(st.sampled_from("abcdef"), max_size=80), st.integers(0, 6))
def test_taking_the_triggers_out_gives_the_text_back(
    signature: bytes, words: list[str], copies: int
) -> None:
    triggered = insert_trigger(words, "T", insertion_positions(signature, 0, len(words), copies))

    assert triggered.count("T") == copies
    assert [word for word in triggered if word != "T"] == words
