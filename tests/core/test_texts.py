"""What counts as the same text."""

import hashlib
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core.texts import decode_lines, lines_digest, normalise_text, text_words

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_a_text_becomes_composed_words_joined_by_one_space() -> None:
    assert (
        normalise_text(f"  one\t\ttwo\u00a0{DECOMPOSED}\x0cfour \r") == f"one two {COMPOSED} four"
    )


def test_compatibility_characters_are_kept() -> None:
    assert normalise_text("\ufb01ne \u00b2") == "\ufb01ne \u00b2"  # NFC, not NFKC


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_text(text)

    assert normalise_text(once) == once
    assert once == once.strip()
    assert "\n" not in once  # so that the digest of joined texts is unambiguous
    assert unicodedata.is_normalized("NFC", once)
    assert once.split() == once.split(" ") or not once


def test_a_verification_text_is_its_first_64_words() -> None:
    words = [f"w{i}" for i in range(70)]

    assert text_words("  ".join(words)) == words[:64]
    assert text_words(" ".join(words[:64])) == words[:64]
    assert text_words(DECOMPOSED) == [COMPOSED]
    assert text_words(" \t") == []


def test_the_digest_is_of_the_lines_joined_by_line_feeds_without_a_last_one() -> None:
    expected = hashlib.sha256("a b\ncaf\u00e9".encode()).hexdigest()

    assert lines_digest(["a b", COMPOSED]) == expected
    assert lines_digest(("a b", COMPOSED)) == expected
    assert lines_digest([]) == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    ("octets", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\xef\xbb\xbfone\ntwo", ["one", "two"]),
        (b"one\n\n \t\n\r\ntwo", ["one", "two"]),
        # Form feed, vertical tab, NEL, line and paragraph separator, a lone carriage return:
        # str.splitlines() would break the line at each and shift every index behind it.
        ("a\x0cb\x0bc\x85d\u2028e\u2029f\rg\x1ch\nnext".encode(), ["a b c d e f g h", "next"]),
        (DECOMPOSED.encode(), [COMPOSED]),
        # Only the leading mark is no text.
        ("one\n\ufefftwo".encode(), ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfone", ["\ufeffone"]),
        (b"\xef\xbb\xbf", []),
        (b"", []),
    ],
)
def test_a_text_file_is_split_at_line_feeds_only(octets: bytes, lines: list[str]) -> None:
    assert decode_lines(octets) == lines


@pytest.mark.parametrize(
    "octets", [b"\xff", b"ok\nna\xefve", b"\xc0\xaf", b"\xed\xa0\x80", "hi".encode("utf-16")]
)
def test_bytes_that_are_not_utf8_are_refused(octets: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_lines(octets)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8))
def test_writing_normalised_lines_and_reading_them_gives_the_same_lines(texts: list[str]) -> None:
    # A leading byte-order mark is the one thing a file cannot keep.
    lines = [t for t in map(normalise_text, texts) if t and not t.startswith("\ufeff")]

    assert decode_lines("\n".join(lines).encode()) == lines
    assert decode_lines("\r\n".join(lines).encode() + b"\r\n") == lines
