"""Writes the same texts in every format, for the tests of this folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path


def plain(texts: Sequence[str]) -> bytes:
    return "\n".join(texts).encode()


def separated(texts: Sequence[str], delimiter: str = ",", column: str = "text") -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", column, "label"])
    writer.writerows([i, text, "x"] for i, text in enumerate(texts))
    return out.getvalue().encode()


def tabbed(texts: Sequence[str]) -> bytes:
    return separated(texts, "\t")


def json_lines(texts: Sequence[str]) -> bytes:
    return "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts).encode()


def json_strings(texts: Sequence[str]) -> bytes:
    return "\n".join(json.dumps(text, ensure_ascii=False) for text in texts).encode()


def parquet(texts: Sequence[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})
    pq.write_table(table, out, row_group_size=3)
    return out.getvalue()


TABLES: dict[str, Callable[[Sequence[str]], bytes]] = {
    "t.csv": separated,
    "t.tsv": tabbed,
    "t.jsonl": json_lines,
    "t.ndjson": json_strings,
}
FORMATS = {"t.txt": plain, "T.TEXT": plain, **TABLES}


def write(folder: Path, name: str, octets: bytes) -> Path:
    """Write a file, packed if its name says so."""
    path = folder / name
    path.write_bytes(gzip.compress(octets) if name.endswith(".gz") else octets)
    return path
