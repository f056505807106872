"""Corpora and pools on disk."""

from pathlib import Path

import pytest

from nsmark.errors import FileAccessError, TextPoolError
from nsmark.payload import read_texts


def written(tmp_path: Path, octets: bytes) -> Path:
    path = tmp_path / "pool.txt"
    path.write_bytes(octets)
    return path


def test_marks_line_ends_blank_lines_and_spellings_do_not_change_the_texts(tmp_path: Path) -> None:
    plain = "one two\ncafé\nlast".encode()
    odd = "\ufeff one\ttwo \r\n\r\n   \ncafe\u0301\r\nlast\r\n\n".encode()

    assert read_texts(written(tmp_path, plain)) == ["one two", "caf\u00e9", "last"]
    assert read_texts(written(tmp_path, odd)) == ["one two", "caf\u00e9", "last"]


def test_a_form_feed_inside_a_line_does_not_shift_the_numbering(tmp_path: Path) -> None:
    octets = "first\x0chalf\x0b\x1c\x85\u2028of\rit\nsecond\n".encode()

    assert read_texts(written(tmp_path, octets)) == ["first half of it", "second"]


@pytest.mark.parametrize(("octets", "where"), [(b"good\nbad \xff", 9), (b"\xef\xbb\xbf\xe9t", 3)])
def test_invalid_utf8_is_an_error_that_names_the_byte(
    tmp_path: Path, octets: bytes, where: int
) -> None:
    with pytest.raises(TextPoolError, match=f"byte {where} "):
        read_texts(written(tmp_path, octets))


@pytest.mark.parametrize("octets", [b"", b"\n\n", b" \t\r\n\x0c", b"\xef\xbb\xbf\n"])
def test_a_file_without_text_is_refused(tmp_path: Path, octets: bytes) -> None:
    with pytest.raises(TextPoolError, match="no text"):
        read_texts(written(tmp_path, octets))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.txt", tmp_path):
        with pytest.raises(FileAccessError, match="cannot read"):
            read_texts(path)
