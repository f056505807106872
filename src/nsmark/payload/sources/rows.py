"""Formats with one text, or one record, after the other: plain text, CSV and TSV, JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from nsmark.errors import TextPoolError, UsageError
from nsmark.payload.sources.columns import DEFAULT_COLUMN, cell_text, missing_column
from nsmark.payload.sources.stream import Budget, decoded_lines, open_bounded, too_long

MAX_RECORD_BYTES = 1 << 24
"""Parsed records cost many times their bytes; a line of plain text does not and has no bound."""


def plain_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield the lines of a text file."""
    with open_bounded(path, budget) as stream:
        if column is not None:
            raise UsageError(
                f"{path} is plain text and has no column {column!r}",
                "leave out the #column, or give a .csv, .tsv, .jsonl or .parquet file",
            )
        for _, line in decoded_lines(stream, path):
            budget.take_row()
            yield line


class _RecordLines:
    """The lines of a CSV file; one record, however many lines it spans, is bounded."""

    def __init__(self, lines: Iterator[tuple[int, str]], path: Path) -> None:
        self._lines = lines
        self._path = path
        self._record_bytes = 0

    def record_ends(self) -> None:
        self._record_bytes = 0

    def __iter__(self) -> _RecordLines:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        self._record_bytes += len(line)
        if self._record_bytes > MAX_RECORD_BYTES:
            raise too_long(self._path, f"record at line {number}", MAX_RECORD_BYTES)
        return line


def csv_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield one column of a CSV file with a header; of a TSV file if the name says so."""
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    with open_bounded(path, budget) as stream:
        lines = _RecordLines(decoded_lines(stream, path, MAX_RECORD_BYTES), path)
        records = _records(path, lines, "\t" if tabs else ",")
        header_place, header = next(records, ("", []))
        if not header_place:
            return
        place = _column_index(path, header, column or DEFAULT_COLUMN)
        for where, record in records:
            budget.take_row()
            if len(record) != len(header):
                raise TextPoolError(
                    f"{path}, {where}: {len(record)} fields, the header has {len(header)}",
                    "quote fields that hold separators, and repair the row",
                )
            yield record[place]


def _records(path: Path, lines: _RecordLines, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the records that are not blank, each with the words that name its place."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = -1  # the header is no row
    while True:
        where = f"row {number + 1} (line {reader.line_num + 1})"
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TextPoolError(
                f"{path}, {where}: {error}",
                "repair the row's quotes, or give the texts as .jsonl",
            ) from error
        lines.record_ends()
        if record:
            number += 1
            yield where, record


def _column_index(path: Path, header: list[str], column: str) -> int:
    if column not in header:
        raise missing_column(str(path), column, header)
    if header.count(column) > 1:
        raise TextPoolError(
            f"{path} has {header.count(column)} columns {column!r}", "give them different names"
        )
    return header.index(column)


def jsonl_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield one field of each JSON object, or the lines' strings where they are no objects."""
    with open_bounded(path, budget) as stream:
        for number, line in decoded_lines(stream, path, MAX_RECORD_BYTES):
            if not line.strip():
                continue
            budget.take_row()
            where = f"{path}, line {number}"
            yield _json_text(_parse(line, where), where, column)


def _parse(line: str, where: str) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError also: a number of 5,000 digits
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise TextPoolError(
            f"{where}: not JSON: {reason}", "one JSON object or string on each line"
        ) from error
    return value


def _json_text(value: object, where: str, column: str | None) -> str:
    name = column or DEFAULT_COLUMN
    if isinstance(value, dict):
        if name not in value:
            raise missing_column(where, name, list(value))
        return cell_text(value[name], where, name)
    if isinstance(value, str) and column is None:
        return cell_text(value, where, name)
    raise TextPoolError(
        f"{where}: a JSON {type(value).__name__}, not an object with {name!r}",
        'write {"text": "…"} or, without a #field, a string on each line',
    )
