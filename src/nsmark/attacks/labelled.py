"""Reading texts with labels: a task that a stolen model is used for."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from pathlib import Path

from nsmark.core.texts import normalise_text
from nsmark.errors import InputError
from nsmark.files import read_bounded

_MAX_BYTES = 1 << 28
_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv")


def read_labelled(path: Path) -> tuple[list[str], list[str]]:
    """Read the columns ``text`` and ``label`` of a JSONL, CSV or TSV file, also gzipped.

    Raises:
        InputError: Another format, or a row without a text and a label.
    """
    content = read_bounded(path, _MAX_BYTES, "task")
    name = path.name.lower()
    if name.endswith(".gz"):
        content, name = _unpacked(content, path), name.removesuffix(".gz")
    if not name.endswith(_SUFFIXES):
        raise InputError(
            f"{path} is no file of labelled texts",
            f"give {', '.join(_SUFFIXES)} with the columns text and label",
        )
    try:
        lines = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8", "save it as UTF-8") from error
    rows = _json_rows if name.endswith(("l", "json")) else _table_rows
    texts, labels = [], []
    for number, row in enumerate(rows(lines, name), 1):
        text, label = (row.get("text"), row.get("label")) if isinstance(row, dict) else (None, None)
        # JSON can hold half of a pair of characters, which no tokenizer takes.
        is_text = isinstance(text, str) and text == text.encode("utf-8", "replace").decode("utf-8")
        if not isinstance(text, str) or not is_text or not isinstance(label, str | int):
            raise InputError(
                f"{path}: row {number} has no text and label",
                'every row needs both: {"text": …, "label": …}',
            )
        short = normalise_text(text)
        if short:
            texts.append(short)
            labels.append(str(label))
    return texts, labels


def _json_rows(lines: str, name: str) -> list[object]:
    rows: list[object] = []
    for number, line in enumerate(lines.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"line {number} of the task is no JSON", "one object per line"
                ) from error
    return rows


def _table_rows(lines: str, name: str) -> list[object]:
    try:
        delimiter = "\t" if name.endswith("tsv") else ","
        return list(csv.DictReader(io.StringIO(lines), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(
            f"the task is no table: {error}", "save it as CSV with a header"
        ) from error


def _unpacked(content: bytes, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            unpacked = stream.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no whole gzip file", "pack it again") from error
    if len(unpacked) > _MAX_BYTES:
        raise InputError(f"{path} is larger than {_MAX_BYTES:,} bytes, unpacked", "give a part")
    return unpacked
