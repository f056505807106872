"""The published word list and lists of an authority."""

import hashlib
import string
from importlib import resources
from pathlib import Path

import pytest

from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import FileAccessError, InputError, TextPoolError
from nsmark.payload import WordList, published_word_list, read_word_list

PUBLISHED_SHA256 = "82726ba9533aa06d35ce45a18b8923c5598232a6bcc59a23016b455472cf9092"


def many_words(count: int = 2000) -> list[str]:
    letters = string.ascii_lowercase
    return sorted(
        "word" + letters[i // 676] + letters[i // 26 % 26] + letters[i % 26] for i in range(count)
    )


def test_the_published_list_is_the_one_that_keys_name() -> None:
    octets = (resources.files("nsmark.payload") / "data" / "words-v1.txt").read_bytes()
    words = octets.decode("ascii").rstrip("\n").split("\n")

    assert published_word_list().words == tuple(words)
    assert published_word_list().digest == hashlib.sha256("\n".join(words).encode()).hexdigest()
    assert published_word_list().digest == PUBLISHED_SHA256


def test_the_published_list_is_long_sorted_and_of_plain_words() -> None:
    words = published_word_list().words

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
