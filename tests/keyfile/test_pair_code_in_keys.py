"""Keys with a pair code: one form, no contradictions, and nothing of it in public."""

import copy
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import rfc8785
from click.testing import CliRunner

from handmade_keys import forge, make_key, make_payload, reseal
from nsmark.cli.inspect import command as inspect
from nsmark.errors import KeyFileError
from nsmark.keyfile import read_key, write_key
from nsmark.keyfile.codec import decode_key, encode_key
from nsmark.keyfile.document import parse_document
from nsmark.payload import PairConfig

SIZES = PairConfig(size=4, repeats=2)
V1 = Path(__file__).parent.parent / "data" / "keys" / "v1"


@pytest.fixture(scope="module")
def key():
    return make_key(pairs=SIZES)


@pytest.fixture
def document(key):
    return copy.deepcopy(key.to_document())


def decode(content):
    return decode_key(io.BytesIO(content), len(content))


def refuse(key, document, match=None):
    with pytest.raises(KeyFileError, match=match):
        decode(forge(key, document=document))


# --- what is written is what was there ---


def test_the_pair_code_comes_back_from_the_file_and_the_file_from_the_key(key, tmp_path):
    content = encode_key(key)

    again = decode(content)

    assert again == key
    assert again.pairs == key.pairs == make_payload(1, "Example Lab", 64, 16, 3, SIZES).pairs
    assert again.payload() == key.payload()
    assert again.payload().pair_texts() == key.payload().pair_texts()
    assert encode_key(again) == content
    write_key(key, tmp_path / "key.nsmark")
    assert (tmp_path / "key.nsmark").read_bytes() == content
    assert read_key(tmp_path / "key.nsmark").key_id == key.key_id


def test_the_document_says_what_a_verifier_cannot_recompute_without_pool_and_list(document):
    assert set(document["pairs"]) == {
        "size",
        "repeats",
        "words",
        "skipped_words",
        "texts",
        "word_list_sha256",
    }
    assert (document["pairs"]["size"], document["pairs"]["repeats"]) == (4, 2)
    assert (len(document["pairs"]["words"]), len(document["pairs"]["texts"])) == (8, 32)
    parsed = parse_document(document)
    assert parsed.model_dump(mode="json", exclude_unset=True) == document


def test_skipped_words_are_kept_in_order(key):
    pairs = replace(key.pairs, skipped_words=("zebra", "apple"))
    again = decode(encode_key(reseal(key, pairs=pairs)))

    assert again.pairs.skipped_words == ("zebra", "apple")


def test_the_seal_covers_the_pair_code(key):
    words, texts = key.pairs.words, key.pairs.texts
    for changes in (
        {"words": (words[1], words[0], *words[2:])},
        {"texts": (texts[1], texts[0], *texts[2:])},
        {"skipped_words": ("zebra",)},
        {"word_list_digest": "00" * 32},
    ):
        changed = replace(key, pairs=replace(key.pairs, **changes))
        assert not changed.has_valid_seal()
        assert changed.key_id != key.key_id
        assert decode(encode_key(reseal(changed))).pairs == changed.pairs


def test_a_key_without_a_pair_code_has_no_member_for_it():
    plain = make_key()

    assert "pairs" not in plain.to_document()
    assert "pairs" not in plain.public_view()
    assert b'"pairs"' not in plain.document_bytes()


def test_the_first_key_ever_kept_still_gives_its_own_bytes():
    content = (V1 / "tiny.nsmark").read_bytes()
    key = decode(content)

    assert key.pairs is None
    # Other writers order the header's members as they like; the document has one form only.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert key.document_bytes().decode() == header["__metadata__"]["nsmark"]
    assert encode_key(key) == content


# --- contradictions ---


def without_mark(document):
    document["configuration"]["marks"].remove("pairs")


def without_code(document):
    del document["pairs"]


@pytest.mark.parametrize("change", [without_mark, without_code])
def test_marks_and_pair_code_must_not_contradict_each_other(key, document, change):
    change(document)

    refuse(key, document, "contradict")


def test_neither_mark_nor_code_is_no_contradiction(key, document):
    without_mark(document)
    without_code(document)

    assert decode(forge(key, document=document)).pairs is None


def test_a_pair_code_of_nothing_is_refused_with_and_without_its_mark(key, document):
    document["pairs"] = None
    refuse(key, document, "contradict")
    without_mark(document)
    refuse(key, document, "not as nsmark writes it")


PAIR_LIES = {
    "a word too few": lambda p: p["words"].pop(),
    "a word too many": lambda p: p["words"].append("zebra"),
    "a word twice": lambda p: p["words"].__setitem__(0, p["words"][1]),
    "a word on both sides": lambda p: p["words"].__setitem__(7, p["words"][0]),
    "no words": lambda p: p["words"].clear(),
    "a text too few": lambda p: p["texts"].pop(),
    "a text too many": lambda p: p["texts"].append("one more text"),
    "no texts": lambda p: p["texts"].clear(),
    "another size": lambda p: p.update(size=5),
    "another number of repeats": lambda p: p.update(repeats=1),
}


@pytest.mark.parametrize("lie", PAIR_LIES)
def test_other_numbers_of_words_or_texts_than_stated_are_refused(key, document, lie):
    PAIR_LIES[lie](document["pairs"])

    refuse(key, document, "other numbers of words or texts")


@pytest.mark.parametrize(
    "text",
    [
        "two  spaces",
        " leading",
        "trailing ",
        "a\ttab",
        "a\nline",
        "cafe\u0301 not composed",
        " ".join(["word"] * 65),
    ],
)
def test_texts_that_are_not_in_normal_form_are_refused(key, document, text):
    document["pairs"]["texts"][9] = text

    refuse(key, document, "normal form")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", 3),
        ("size", 65),
        ("size", 4.5),
        ("size", "4"),
        ("size", True),
        ("size", None),
        ("repeats", 0),
        ("repeats", 65),
        ("repeats", "2"),
        ("words", "zebra"),
        ("words", ["zebra"] * 129),
        ("words", [4] * 8),
        ("words", None),
        ("skipped_words", ["x"]),
        ("skipped_words", None),
        ("texts", [""] * 32),
        ("texts", [1] * 32),
        ("texts", ["x" * 65537] * 32),
        ("texts", None),
        ("word_list_sha256", "0" * 63),
        ("word_list_sha256", "G" * 64),
    ],
)
def test_members_of_the_wrong_type_or_size_are_refused(key, document, name, value):
    document["pairs"][name] = value

    refuse(key, document, rf"pairs\.{name}")


@pytest.mark.parametrize(
    "word", ["abc", "abcdefghijklm", "Upper", "na\u00efve", "two words", "word1", "", "word\n"]
)
@pytest.mark.parametrize("where", ["words", "skipped_words"])
def test_words_of_odd_characters_are_refused(key, document, where, word):
    document["pairs"][where] = [word, *document["pairs"][where][1:]]

    refuse(key, document, rf"pairs\.{where}\.0")


def test_every_member_is_required_and_no_other_is_allowed(key, document):
    for name in document["pairs"]:
        partial = {k: v for k, v in document["pairs"].items() if k != name}
        refuse(key, document | {"pairs": partial}, rf"pairs\.{name}")
    for name in ("table", "signs", "extra"):
        refuse(key, document | {"pairs": document["pairs"] | {name: []}}, rf"pairs\.{name}")
    for value in ([], "pairs", 1, {}):
        refuse(key, document | {"pairs": value}, "pairs")


def test_more_texts_than_any_pair_code_has_are_refused_before_they_are_looked_at(document):
    document["pairs"]["texts"] = ["x"] * 262145

    with pytest.raises(KeyFileError, match=r"pairs\.texts"):
        parse_document(document)


def test_the_largest_pair_code_fits_the_limits_of_the_document():
    largest = PairConfig(size=64, repeats=64)

    assert 2 * largest.size <= 128
    assert largest.num_texts <= 262144


# --- construction refuses what a file may not hold ---


def test_a_key_cannot_be_made_with_a_contradictory_pair_code(key):
    pairs, plain = key.pairs, make_key()
    for wrong in (
        {"words": pairs.words[:-1]},
        {"words": (pairs.words[0], *pairs.words[:-1])},
        {"texts": pairs.texts[1:]},
        {"config": PairConfig(size=4, repeats=3)},
    ):
        with pytest.raises(KeyFileError, match="other numbers"):
            replace(key, pairs=replace(pairs, **wrong))
    with pytest.raises(KeyFileError, match="normal form"):
        replace(key, pairs=replace(pairs, texts=("two  spaces", *pairs.texts[1:])))
    with pytest.raises(KeyFileError, match="contradict"):
        replace(key, pairs=None)
    with pytest.raises(KeyFileError, match="contradict"):
        replace(plain, pairs=pairs)


def test_a_key_that_no_reader_would_accept_is_never_written(key):
    for changes in (
        {"words": ("Upper", *key.pairs.words[1:])},
        {"skipped_words": ("x",)},
        {"word_list_digest": "00"},
    ):
        sealed = reseal(key, pairs=replace(key.pairs, **changes))
        with pytest.raises(KeyFileError, match=r"pairs\."):
            encode_key(sealed)


# --- what the public sees ---


def assert_secret(key, shown):
    # Whole words: "normal" is one of them, and "normalise" is a setting.
    assert not set(key.pairs.words) & set(re.findall(r"[a-z]+", shown))
    for text in (*key.pairs.texts, *key.payload().pair_texts()):
        assert text not in shown
    assert key.signature.hex() not in shown


def test_the_public_view_tells_sizes_and_keeps_words_and_texts(key):
    view = key.public_view()

    assert view["pairs"] == {
        "size": 4,
        "repeats": 2,
        "num_texts": 32,
        "word_list_sha256": key.pairs.word_list_digest,
    }
    assert_secret(key, rfc8785.dumps(view).decode())
    assert_secret(key, repr(key) + str(key))
    assert_secret(key, repr(key.payload()))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_inspecting_a_key_tells_sizes_and_keeps_words_and_texts(key, tmp_path, options):
    write_key(key, tmp_path / "key.nsmark")
    public = tmp_path / "public.json"

    result = CliRunner().invoke(
        inspect, [str(tmp_path / "key.nsmark"), "--public", str(public), *options]
    )

    assert result.exit_code == 0
    assert "32 texts" in result.output or '"num_texts": 32' in result.output
    assert_secret(key, result.output)
    assert_secret(key, public.read_text())


def test_the_queries_hold_every_pair_text_in_order(key, tmp_path):
    write_key(key, tmp_path / "key.nsmark")
    queries = tmp_path / "queries.jsonl"

    result = CliRunner().invoke(inspect, [str(tmp_path / "key.nsmark"), "--queries", str(queries)])

    assert result.exit_code == 0
    rows = [json.loads(line) for line in queries.read_text().splitlines()]
    pairs = [row for row in rows if "pair_text" in row]
    assert len(rows) == 64 + 32
    assert [row["index"] for row in pairs] == list(range(32))
    assert [row["pair_text"] for row in pairs] == key.payload().pair_texts()
