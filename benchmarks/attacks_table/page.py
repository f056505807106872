"""The page about attacks: what they cost, what they leave.

python benchmarks/attacks_table/page.py JSON > docs/results/attacks.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from nsmark.attacks.comparison import markdown_table

Document = dict[str, Any]

INTRODUCTION = """
Made by the command below, not by hand. Every attacked model is asked the key's texts, as it would
be served, and judged by the rule `calibrated` with the key's own controls. *Margin*: how far the
farthest witness lies beyond its line, in closeness (one more: a third as much is left
unexplained); below 0 nothing accuses. *Similarity*: correlation of the cosine similarities of 300
of the task's test texts with those before the attack. *Points lost*: accuracy of a linear
classifier learned anew on the answers, in percentage points.
"""


def markdown(document: Document) -> str:
    """Return the page."""
    suites = document["suites"]
    parts = [
        "# What attacks cost, and what evidence they leave",
        INTRODUCTION.strip(),
        f"```console\n{document['command']}\n```",
        summary(document),
    ]
    for name, rows in suites.items():
        before = next((r["utility"]["accuracy"] for r in rows if r["attack"] == "none"), None)
        told = "" if before is None else f", accuracy {before:.3f} before any attack"
        parts += [f"## Task {name}{told}", markdown_table(rows)]
    parts += [
        "## Recovery of the extraction rate: no evidence",
        "A linear map fitted on 70 % of the texts from a model's outputs to the owner's, read on "
        "the rest. The last column is the same fit from random numbers.",
        plain_table(document["recovery"], ("model", "how", "before", "recovered", "noise")),
        "## Wrong parts of the key",
        plain_table(
            document["wrong_keys"], ("model", "part", "extraction_rate", "matching_degree")
        ),
    ]
    return "\n\n".join(parts) + "\n"


def summary(document: Document) -> str:
    """Return how often ownership is shown, and after what it is not."""
    rows = [row for rows in document["suites"].values() for row in rows if row["error"] is None]
    lost = [row for row in rows if row["verdict"] != "owned"]
    lines = [f"Ownership is shown after {len(rows) - len(lost)} of {len(rows)} attacks."]
    for row in lost:
        utility = row["utility"]
        lines.append(
            f"- not shown after `{row['attack']}`: similarity {utility['similarity']:.3f}, "
            f"{utility['points_lost']:.1f} points lost"
        )
    return "\n".join(lines)


def plain_table(rows: list[Document], columns: tuple[str, ...]) -> str:
    """Return some columns of some rows."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row[name] for name in columns]
        shown = [
            "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
            for cell in cells
        ]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
