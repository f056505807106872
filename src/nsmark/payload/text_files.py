"""Reading corpora and pools, whatever they are kept in.

=============================================  ===================================================
``FILE``                                       plain text, one text per line (also ``.gz``)
``FILE.csv``, ``.tsv``, ``.jsonl``, ``.gz``    column ``text``, or ``FILE#column``
``FILE.parquet``                               the same; needs the extra ``data``
``dataset:./FOLDER[:SPLIT][#column]``          a folder of such files, or one of ``save_to_disk``
``dataset:[OWNER/]NAME[:SPLIT][#column]``      a dataset of the Hugging Face hub, streamed
``dataset:OWNER/NAME/CONFIG[:SPLIT][#column]`` one configuration of it
=============================================  ===================================================

Whatever the format, the same texts give the same list and so the same pool digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nsmark.core.texts import normalise_text
from nsmark.errors import TextPoolError, UsageError
from nsmark.payload.mapped import MappedTexts
from nsmark.payload.sources.folders import folder_texts
from nsmark.payload.sources.formats import file_texts
from nsmark.payload.sources.hub import hub_texts
from nsmark.payload.sources.stream import Budget

MAX_TEXT_FILE_BYTES = 1 << 30
"""Bound on the unpacked bytes of one source."""

MAX_CORPUS_BYTES = 16 << 30
"""The same for training texts, which are not held in memory."""

DATASET_PREFIX = "dataset:"

_PART = r"[A-Za-z0-9][\w.-]*"
_HUB_NAME = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?:/(?P<config>{_PART}))?", re.ASCII)
_LOCAL_SPLIT = re.compile(r"(?P<folder>.+):(?P<split>[\w.-]+)")


def read_texts(source: str | Path) -> list[str]:
    """Return the normalised, non-empty texts of a corpus or pool, in order.

    Args:
        source: A path; or a string as the user gave it: ``FILE``, ``FILE#column`` or
            ``dataset:…`` (see the module).

    Raises:
        FileAccessError: It cannot be read.
        TextPoolError: It is malformed, too large, or has no text in it.
        MissingExtraError: Its format needs a package that is not installed.
        UsageError: It is not written as a source is.
    """
    return list(_texts(source, MAX_TEXT_FILE_BYTES))


def map_texts(source: str | Path) -> MappedTexts:
    """Return the same, kept in a temporary file: a corpus may be larger than memory.

    Raises:
        NsmarkError: As :func:`read_texts`.
    """
    return MappedTexts(_texts(source, MAX_CORPUS_BYTES))


def _texts(source: str | Path, max_bytes: int) -> Iterator[str]:
    budget, found = Budget(str(source), max_bytes), False
    for raw in _raw_texts(source, budget):
        if text := normalise_text(raw):
            found = True
            yield text
    if not found:
        raise TextPoolError(
            f"{source} holds no text", "give a file with one text per line, or choose a column"
        )


def _raw_texts(source: str | Path, budget: Budget) -> Iterator[str]:
    if isinstance(source, Path):
        return file_texts(source, None, budget)
    if source.startswith(DATASET_PREFIX):
        return _dataset_texts(source.removeprefix(DATASET_PREFIX), budget)
    path, column = _path_and_column(source)
    return file_texts(path, column, budget)


def _path_and_column(source: str) -> tuple[Path, str | None]:
    """Split at the last ``#``, unless a file has that very name."""
    if not source:
        raise UsageError("an empty path is no source of texts", "give a file or dataset:NAME")
    if "#" not in source or _exists(source):
        return Path(source), None
    head, _, column = source.rpartition("#")
    if not head or not column:
        raise UsageError(f"{source!r} lacks a file or a column", "write it as FILE#column")
    return Path(head), column


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # too long a name, for one
        return False


def _dataset_texts(source: str, budget: Budget) -> Iterator[str]:
    place, column = source, None
    if "#" in source and not _exists(source):
        place, _, column = source.rpartition("#")
        if not column:
            raise UsageError(f"dataset:{source} lacks a column", "write it as dataset:NAME#column")
    if place.startswith((".", "/", "~")):
        folder, split = _folder_and_split(place)
        return folder_texts(folder, split, column, budget)
    name, colon, split_name = place.partition(":")
    match = _HUB_NAME.fullmatch(name)
    if match is None or (colon and not re.fullmatch(_PART, split_name)):
        raise UsageError(
            f"dataset:{source} names no dataset",
            "write dataset:OWNER/NAME[/CONFIG][:SPLIT][#column] or dataset:./folder",
        )
    return hub_texts(match["name"], match["config"], split_name or None, column, budget)


def _folder_and_split(place: str) -> tuple[Path, str | None]:
    match = None if _exists(place) else _LOCAL_SPLIT.fullmatch(place)
    folder, split = (match["folder"], match["split"]) if match else (place, None)
    try:
        return Path(folder).expanduser(), split
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"dataset:{place}: {error}", "write the path out") from error
