"""One model of every kind, marked and measured: makes docs/results/embedding.md and its JSON.

    python benchmarks/embedding_table.py --data DIR --minilm DIR --json results/embedding.json
        --markdown docs/results/embedding.md

DIR after ``--data`` holds ``wikitext-2``, ``sst2`` and ``agnews``; DIR after ``--minilm`` is the
sentence-transformers folder of all-MiniLM-L6-v2. Rows of an earlier run that are not measured
again stay in the JSON file, so a long table may be made in parts (``--rows NAME …``); ``--rows``
without a name measures nothing and writes the page from the file. Uses the training engine
directly and needs neither key nor identity, so that it runs on a bare machine with torch.
This is the command; its parts are in ``family_table``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from family_table.document import put_row, read_document, write
from family_table.one_row import run_row, skipped_row
from family_table.page import markdown
from family_table.rows import ROWS, Row
from family_table.scales import SCALES
from family_table.texts import Material, read_material
from nsmark.models.loading import resolve_device
from provenance import measured


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the text sets")
    parser.add_argument("--minilm", type=Path, help="sentence-transformers folder of MiniLM")
    parser.add_argument("--json", type=Path, required=True, help="results, read and written")
    parser.add_argument("--markdown", type=Path, help="page made from them")
    parser.add_argument("--rows", nargs="*", choices=[row.name for row in ROWS], metavar="NAME")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parsed = parser.parse_args(arguments)
    if parsed.rows != [] and parsed.data is None:
        parser.error("--data is needed to measure")
    return parsed


def is_left_out(row: Row, arguments: argparse.Namespace) -> bool:
    """Return whether a row would take hours here: no accelerator, and no tiny one asked for."""
    asked = arguments.rows is not None and arguments.scale == "tiny"
    on_cuda = resolve_device(arguments.device).type == "cuda"
    return row.needs_cuda and not on_cuda and not asked


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows asked for, and write the results after each."""
    parsed = parse_arguments(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    document = read_document(parsed.json, parsed.scale)
    loaded: list[Material] = []

    def material() -> Material:
        if not loaded:
            loaded.append(read_material(parsed.data))
        return loaded[0]

    for row in ROWS:
        if parsed.rows is not None and row.name not in parsed.rows:
            continue
        if is_left_out(row, parsed):
            report = skipped_row(row, parsed.device)
        else:
            report = run_row(row, parsed.scale, material, parsed.minilm, parsed.device)
        # Of rows that are measured one by one each says it; of whole tables the document does.
        if parsed.rows is None:
            document["measured"] = measured(("fast", "strong"), device=parsed.device)
        elif report["status"] == "measured":
            report["measured"] = measured(("fast", "strong"), device=parsed.device)
        put_row(document, report)
        write(parsed.json, json.dumps(document, indent=1) + "\n")
        print(json.dumps(report), flush=True)
    if parsed.markdown is not None:
        write(parsed.markdown, markdown(document))


if __name__ == "__main__":
    main()
