"""The file of results: rows of earlier runs stay, and no write leaves half of it."""

from __future__ import annotations

import json
from pathlib import Path

from family_table.report import Report
from family_table.rows import ROWS
from family_table.seeds import SEED

COMMAND = (
    "python benchmarks/embedding_table.py --data DIR --minilm DIR "
    "--json results/embedding.json --markdown docs/results/embedding.md"
)


def read_document(path: Path, scale: str) -> Report:
    """Return the results so far, or an empty document.

    Raises:
        ValueError: They are of another scale, and a table must not mix them.
    """
    document: Report = {"seed": SEED, "scale": scale, "command": COMMAND, "rows": []}
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["scale"] != scale:
            raise ValueError(f"{path} holds rows of scale {document['scale']!r}: give another file")
    return document


def put_row(document: Report, report: Report) -> None:
    """Put a row into its place; a skipped one does not push out a measured one."""
    rows = {row["name"]: row for row in document["rows"]}
    if report["status"] != "skipped" or report["name"] not in rows:
        rows[report["name"]] = report
    names = [row.name for row in ROWS]
    document["rows"] = sorted(rows.values(), key=lambda row: names.index(row["name"]))


def write(path: Path, content: str) -> None:
    """Write a whole file or none of it: a time limit may strike at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
