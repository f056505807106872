"""The published word list and lists of an authority."""

import hashlib
import string
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import FileAccessError, InputError, TextPoolError
from nsmark.payload import (
    WordList,
    ordinary_word_list,
    published_word_list,
    read_word_list,
)
from nsmark.suspects.http_client import USUAL_WORDS

PUBLISHED_SHA256 = "82726ba9533aa06d35ce45a18b8923c5598232a6bcc59a23016b455472cf9092"
ORDINARY_SHA256 = "4875e6c43f3aadbef32cabe1fb4daaed02ec48f6a52c2732b67095bcf2a53ccb"
DATA = resources.files("nsmark.payload") / "data"


def many_words(count: int = 2000) -> list[str]:
    letters = string.ascii_lowercase
    return sorted(
        "word" + letters[i // 676] + letters[i // 26 % 26] + letters[i % 26] for i in range(count)
    )


BOTH_LISTS = pytest.mark.parametrize(
    ("name", "packaged", "digest"),
    [
        ("words-v1.txt", published_word_list, PUBLISHED_SHA256),
        ("ordinary-v1.txt", ordinary_word_list, ORDINARY_SHA256),
    ],
    ids=["rare", "ordinary"],
)


@BOTH_LISTS
def test_the_published_lists_are_those_that_keys_name(
    name: str, packaged: Callable[[], WordList], digest: str
) -> None:
    octets = (DATA / name).read_bytes()
    words = octets.decode("ascii").removesuffix("\n").split("\n")

    assert octets.endswith(b"\n")
    assert packaged().words == tuple(words)
    assert packaged().digest == hashlib.sha256(octets[:-1]).hexdigest()
    assert packaged().digest == digest


@BOTH_LISTS
def test_the_published_lists_are_long_sorted_and_of_plain_words(
    name: str, packaged: Callable[[], WordList], digest: str
) -> None:
    words = packaged().words

    assert len(words) >= 2000
    assert list(words) == sorted(set(words))
    assert all(4 <= len(w) <= 12 and set(w) <= set(string.ascii_lowercase) for w in words)


def test_published_words_are_uncommon() -> None:
    common = {"that", "with", "have", "about", "house", "world", "water", "people", "because"}
    texts = training_texts() + pool_texts()
    seen = {word.strip(".,;:!?\"'()").lower() for text in texts for word in text.split()}

    assert not common & set(published_word_list().words)
    # A trigger that occurs in the built-in texts would fire there.
    assert not seen & set(published_word_list().words)


def test_ordinary_words_are_ordinary() -> None:
    words = set(ordinary_word_list().words)

    # A filter for rare words, or for the words of the other list, must not find them.
    assert not words & set(published_word_list().words)
    assert {"above", "behind", "house", "primary", "questioned", "runway", "youth"} <= words


def test_no_ordinary_word_is_one_that_endpoints_use_in_their_errors() -> None:
    # Those are passed on from an endpoint's answer; words of a pair code must never be.
    assert USUAL_WORDS
    assert not USUAL_WORDS & set(ordinary_word_list().words)
    assert not USUAL_WORDS & set(published_word_list().words)


def test_a_list_is_named_by_its_words_joined_by_line_feeds() -> None:
    words = many_words()

    assert WordList(tuple(words)).digest == hashlib.sha256("\n".join(words).encode()).hexdigest()


def test_the_spelling_of_the_file_does_not_change_the_name(tmp_path: Path) -> None:
    words = many_words()
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(words).encode() + b"\r\n\r\n")

    assert read_word_list(path) == WordList(tuple(words))
    assert read_word_list(path).digest == WordList(tuple(words)).digest


def test_a_short_list_is_refused() -> None:
    assert len(WordList(tuple(many_words(2000))).words) == 2000
    with pytest.raises(TextPoolError, match="1999 words, 2000"):
        WordList(tuple(many_words(1999)))


@pytest.mark.parametrize(
    "word",
    ["abc", "abcdefghijklm", "Word", "naïve", "two words", "hyphen-ed", "word1", "", "word\n"],
)
def test_a_list_with_another_kind_of_word_is_refused(word: str) -> None:
    with pytest.raises(TextPoolError, match="letters"):
        WordList(tuple(sorted([*many_words(), word])))


def test_an_unsorted_list_and_a_repeated_word_are_refused() -> None:
    words = many_words()
    for wrong in ([*words[1:], words[0]], sorted([*words, words[7]]), words[::-1]):
        with pytest.raises(TextPoolError, match="sorted"):
            WordList(tuple(wrong))


def test_files_that_cannot_be_a_list_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TextPoolError, match="UTF-8"):
        read_word_list(path)
    with pytest.raises(FileAccessError):
        read_word_list(tmp_path / "missing.txt")
    path.write_bytes(b"\n" * (16 * 1024 * 1024 + 1))
    with pytest.raises(InputError, match="larger"):
        read_word_list(path)
