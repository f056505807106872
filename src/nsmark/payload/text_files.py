"""Reading corpora and pools: one text per line."""

from __future__ import annotations

from pathlib import Path

from nsmark.core.texts import decode_lines
from nsmark.errors import TextPoolError
from nsmark.files import read_bounded

MAX_TEXT_FILE_BYTES = 1 << 30


def read_texts(path: Path) -> list[str]:
    """Return the normalised, non-empty lines of a UTF-8 text file.

    Raises:
        TextPoolError: Not UTF-8, or no text in it.
    """
    try:
        texts = decode_lines(read_bounded(path, MAX_TEXT_FILE_BYTES, "text file"))
    except UnicodeDecodeError as error:
        raise TextPoolError(
            f"{path} is not UTF-8 text: byte {error.start} cannot be decoded",
            "convert the file to UTF-8, one text per line",
        ) from error
    if not texts:
        raise TextPoolError(f"{path} holds no text", "give a file with one text per line")
    return texts
