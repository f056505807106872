"""Which reader a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from nsmark.errors import TextPoolError
from nsmark.payload.sources.columnar import parquet_texts
from nsmark.payload.sources.rows import csv_texts, jsonl_texts, plain_texts
from nsmark.payload.sources.stream import Budget

Reader = Callable[[Path, str | None, Budget], Iterator[str]]

TABLE_READERS: dict[str, Reader] = {
    ".csv": csv_texts,
    ".tsv": csv_texts,
    ".jsonl": jsonl_texts,
    ".ndjson": jsonl_texts,
    ".csv.gz": csv_texts,
    ".tsv.gz": csv_texts,
    ".jsonl.gz": jsonl_texts,
    ".ndjson.gz": jsonl_texts,
    ".parquet": parquet_texts,
}
"""Formats with named columns; every other name is plain text."""

_REFUSED = {
    ".json": "one JSON object per line: rename it to .jsonl; one array: write its items as lines",
    ".json.gz": "one JSON object per line: rename it to .jsonl.gz",
    ".parquet.gz": "Parquet is compressed inside: unpack the .gz",
    ".arrow": "give the folder that save_to_disk wrote, as dataset:./folder",
}
"""Names whose content, read as plain text, would be nonsense without an error."""


def table_reader(path: Path) -> Reader | None:
    """Return the reader for a file with columns, or None for any other name."""
    name = path.name.lower()
    return next((read for end, read in TABLE_READERS.items() if name.endswith(end)), None)


def file_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield the texts of one file in the format its name says."""
    for end, hint in _REFUSED.items():
        if path.name.lower().endswith(end) and path.is_file():
            raise TextPoolError(f"{path}: {end} is no format for texts", hint)
    return (table_reader(path) or plain_texts)(path, column, budget)
