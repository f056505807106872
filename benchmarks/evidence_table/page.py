"""The page about suspects: who was found, who was accused, and by what.

python benchmarks/evidence_table/page.py JSON... > docs/results/evidence.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are scripts, not a package

from provenance import when_measured

Document = dict[str, Any]

INTRODUCTION = """
Made by the command below, not by hand. A model is marked and its key calibrated on controls made
from the unmarked model and on tasks made up for it. The suspects here are others: fine-tuned on
real tasks, pruned, overwritten, distilled, random, each as it is and behind changes of its outputs.
No line was drawn from any of them.

Hypothesis of the rule `calibrated`: the suspect is an innocent model of the controls' kind. It is
rejected where a witness lies beyond a line drawn for the stated rate of false accusations, all
witnesses together. A pair code, where the model has one, is not asked: it needs no controls, and
has a [page of its own](../pair-code.md).
"""


def markdown(documents: Sequence[Document]) -> str:
    """Return the page that shows one document per preset."""
    measured = dict.fromkeys(when_measured(document.get("measured")) for document in documents)
    parts = ["# What is found, and who is accused", *measured, INTRODUCTION.strip()]
    for document in documents:
        parts += section(document)
    return "\n\n".join(parts) + "\n"


def section(document: Document) -> list[str]:
    """Return what is said about one preset."""
    accused = document["innocents_accused"]
    calibration = document["calibration"]
    lines = [
        f"- thefts found: {document['thefts_found']} of {document['thefts']} "
        f"(rule `paper`: {document['thefts_found_by_paper']}); of those pruned by no more than "
        f"40 % (feed-forward layers alone: 50 %), {document['promised_found']} of "
        f"{document['promised']}",
        f"- innocents accused: {accused} of {document['innocents']} "
        f"(rule `paper`: {document['innocents_accused_by_paper']})",
        f"- {calibration['num_control_models']} control models; stated rate {document['rate']:g} "
        f"with {calibration['confidence']:.0%} confidence; "
        f"{calibration['control_models_accused']} controls accused by the lines of the others, "
        f"which bounds the rate by {calibration['false_accusation_bound']:.2f}",
        "- area under the ROC curve, those thefts against all innocents: "
        f"{document['area_under_roc']:.4f} by the margin to the nearest line; "
        "by each statistic alone: "
        + ", ".join(
            f"{each['statistic']} {each['area_under_roc']:.4f}" for each in document["separation"]
        ),
    ]
    missed = [r for r in document["rows"] if r["theft"] and r["verdict"] != "owned"]
    guilty = [r for r in document["rows"] if not r["theft"] and r["verdict"] == "owned"]
    return [
        f"## Preset `{document['preset']}`, marks {', '.join(document['marks'])}",
        f"```console\n{document['command']}\n```",
        *([document["note"]] if "note" in document else []),
        "\n".join(lines),
        "### Missed thefts" if missed else "No theft was missed.",
        *([table(missed)] if missed else []),
        "### Innocents accused" if guilty else "No innocent model was accused.",
        *([table(guilty)] if guilty else []),
        "### All suspects as they are",
        table([row for row in document["rows"] if row["name"].endswith("as it is")]),
        "### All suspects behind changes of their outputs",
        changes_table(document["rows"]),
    ]


def number(value: float | None, digits: int = 3) -> str:
    """Return a number, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def table(rows: Sequence[Document]) -> str:
    """Return the statistics of some suspects."""
    names = (
        ("extraction_rate", "extraction"),
        ("derived_extraction_rate", "derived"),
        ("invariant_matching_degree", "degree"),
        ("subspace_overlap", "overlap"),
        ("predictability", "predictability"),
        ("aligned_subspace_overlap", "aligned overlap"),
        ("aligned_predictability", "aligned pred."),
        ("alignment_gap", "gap"),
    )
    head = ["suspect", "", "verdict", *(label for _, label in names), "untriggered pred."]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        values = [number(row["triggered"][name]) for name, _ in names]
        kind = "theft" if row["theft"] else "innocent"
        cells = [row["name"].replace(" | ", ": "), kind, row["verdict"], *values]
        cells.append(number(row["untriggered"]["predictability"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def changes_table(rows: Sequence[Document]) -> str:
    """Return how many suspects of either kind are called owned behind each change."""
    changes = list(dict.fromkeys(row["name"].partition(" | ")[2] for row in rows))
    lines = ["| change of the outputs | thefts found | innocents accused |", "|---|---|---|"]
    for change in changes:
        counts = []
        for is_theft in (True, False):
            side = [
                row
                for row in rows
                if row["theft"] is is_theft and row["name"].partition(" | ")[2] == change
            ]
            owned = sum(row["verdict"] == "owned" for row in side)
            counts.append(f"{owned} of {len(side)}")
        lines.append(f"| {change} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown([json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:]]), end="")
