"""Dataset folders on disk: what ``save_to_disk`` wrote, or data files named by split.

Read with our own readers rather than through package ``datasets``: they are bounded, and nothing
in the folder (a card, a script, a pickle) decides what is opened or run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nsmark.errors import FileAccessError, TextPoolError
from nsmark.files import read_bounded
from nsmark.payload.sources.columnar import arrow_texts
from nsmark.payload.sources.formats import Reader, table_reader
from nsmark.payload.sources.stream import Budget

_MAX_MANIFEST_BYTES = 1 << 20
_MAX_FILES = 10_000
_SPLIT_IN_NAME = re.compile(r"(train|validation|valid|dev|test)(?![a-z])", re.IGNORECASE)


def folder_texts(
    folder: Path, split: str | None, column: str | None, budget: Budget
) -> Iterator[str]:
    """Yield the texts of one split of a dataset folder, files in the order of their names."""
    for path, read in _files_of_split(folder, split):
        yield from read(path, column, budget)


def choose_split(source: str, splits: Sequence[str], wanted: str | None) -> str:
    """Return the split asked for; if none was, the only one or ``train``.

    Raises:
        TextPoolError: There is no such split, or no obvious one.
    """
    if wanted is None and len(splits) == 1:
        return splits[0]
    name = wanted or "train"
    if name not in splits:
        listing = ", ".join(repr(split[:40]) for split in splits[:20]) or "none"
        raise TextPoolError(
            f"{source} has no split {name!r}; it has: {listing}",
            "name the split after a colon, as in dataset:NAME:test",
        )
    return name


def _files_of_split(folder: Path, split: str | None) -> list[tuple[Path, Reader]]:
    if not folder.is_dir():
        raise FileAccessError(f"cannot read dataset folder {folder}: no such folder", "check it")
    if (folder / "dataset_dict.json").is_file():
        manifest = _manifest(folder / "dataset_dict.json")
        name = choose_split(str(folder), _names(folder, manifest.get("splits")), split)
        return _saved_files(folder / name)
    if (folder / "state.json").is_file():
        if split is not None:
            saved_as = str(_manifest(folder / "state.json").get("_split"))
            choose_split(str(folder), [saved_as], split)
        return _saved_files(folder)
    by_split = _data_files(folder)
    return by_split[choose_split(str(folder), sorted(by_split), split)]


def _saved_files(folder: Path) -> list[tuple[Path, Reader]]:
    """Return the Arrow files that ``save_to_disk`` listed, in its order."""
    entries = _manifest(folder / "state.json").get("_data_files")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _damaged(folder / "state.json")
    names = _names(folder, [entry.get("filename") for entry in entries])
    return [(folder / name, arrow_texts) for name in names]


def _manifest(path: Path) -> dict[str, object]:
    try:
        document = json.loads(read_bounded(path, _MAX_MANIFEST_BYTES, "dataset manifest"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(document, dict):
        raise _damaged(path)
    return document


def _names(folder: Path, values: object) -> list[str]:
    """Return names of files or folders that lie directly in the folder, and nowhere else."""
    if not isinstance(values, list):
        raise _damaged(folder)
    names: list[str] = []
    for value in values:
        if (
            not isinstance(value, str)
            or not value
            or value in {".", ".."}
            or set(value) & set("/\\\0")
        ):
            raise _damaged(folder)
        names.append(value)
    return names


def _damaged(path: Path) -> TextPoolError:
    return TextPoolError(
        f"{path} is not what save_to_disk writes", "save the dataset again, or give its data files"
    )


def _data_files(folder: Path) -> dict[str, list[tuple[Path, Reader]]]:
    """Return the data files of a folder and the folders in it by split, in order of their paths."""
    found: dict[str, list[tuple[Path, Reader]]] = {}
    paths = sorted(_walk(folder))
    for path in paths:
        reader = table_reader(path)
        if reader is not None:
            found.setdefault(_split_of(path.relative_to(folder)), []).append((path, reader))
    if not found:
        raise TextPoolError(
            f"{folder} holds no .parquet, .jsonl, .csv or .tsv file and was not written by "
            "save_to_disk",
            "give a folder of data files, or the texts as one file",
        )
    return found


def _walk(folder: Path) -> Iterator[Path]:
    count = 0
    for root, folders, files in os.walk(folder):  # does not follow links to folders
        # Hidden folders hold caches and versions of the same files.
        deep = len(Path(root).relative_to(folder).parts) >= 2
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        for name in files:
            count += 1
            if count > _MAX_FILES:
                raise TextPoolError(
                    f"{folder} holds more than {_MAX_FILES:,} files", "give a folder of data files"
                )
            if not name.startswith("."):
                yield Path(root) / name


def _split_of(path: Path) -> str:
    """Return the split a file belongs to, as on the hub: by its name, its folder, else train."""
    for part in (path.name, *path.parent.parts[::-1]):
        if match := _SPLIT_IN_NAME.match(part):
            word = match[1].lower()
            return "validation" if word in {"valid", "dev"} else word
    return "train"
