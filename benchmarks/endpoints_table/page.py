"""The page about endpoints: what the command line found through each server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provenance import when_measured

Document = dict[str, Any]

INTRODUCTION = """
Made by the command below, not by hand. Each row is one run of `nsmark verify KEY SUSPECT --json` in
a process of its own, with the default rule, default decoys and no cache. The same folders are
measured without a server for comparison.
"""

EMBEDDINGS = """
The server is infinity-emb, which others wrote, in a virtual environment of its own. The command
line always asks for base64 first. *float*: a gateway in between refuses `encoding_format`, as older
servers do; the command line then asks without it and gets the server's plain numbers. *Difference*:
the largest difference of any output number from the folder's.
"""

COMPLETIONS = """
The server is that of this repository's tests (`tests/endpoint_server.py`): real HTTP around a real
transformers model, answering in the form that vLLM does; vLLM itself was not run. Log-probabilities
are not the outputs the extractor was trained on, so it has nothing to read: the null space speaks.
"""

READING = """
*Degree*: rotation-invariant matching degree, 0 = the same model. *Extraction*, *derived*,
*overlap*, *predictability*: 1 = the same; ½ is chance for *derived*. *Queries*: texts sent, decoys
among them. *Answered*: requests the server answered, by its own count. *Time*: the whole command,
from start to exit; beside a folder it holds the loading of torch and the model, which a server has
done before. Exit status: 0 owned, 1 not shown, 3 could not measure. A dash: not to be had.
"""

_COLUMNS = (
    ("extraction_rate", "extraction"),
    ("derived_extraction_rate", "derived"),
    ("invariant_matching_degree", "degree"),
    ("subspace_overlap", "overlap"),
    ("predictability", "predictability"),
    ("output_dim", "dimensions"),
    ("queries", "queries"),
    ("decoys", "decoys"),
    ("requests_answered", "answered"),
)


def markdown(document: Document) -> str:
    """Return the page."""
    parts = [
        "# What is measured through real servers",
        when_measured(document.get("measured")),
        INTRODUCTION.strip(),
        "\n".join(f"- {fact}" for fact in facts(document)),
        f"```console\n{document['command']}\n```",
        "## Embeddings: `openai:URL#model`",
        EMBEDDINGS.strip(),
        *section(document["embeddings"], with_difference=True),
        "## Log-probabilities: `completions:URL#model`",
        COMPLETIONS.strip(),
        *section(document["completions"]),
        "## How to read it",
        READING.strip(),
    ]
    return "\n\n".join(parts) + "\n"


def facts(document: Document) -> list[str]:
    """Say what it was measured with, how long it took and what came of it."""
    environment = dict(document["environment"])
    machine, threads = environment.pop("machine"), environment.pop("threads")
    own = [f"{name} {value}" for name, value in environment.items() if value]
    theirs = [f"{name} {value}" for name, value in document["infinity"].items()]
    return [
        machine + (f", {threads} thread(s) in each process" if threads else ""),
        ", ".join(own),
        "the embeddings server: " + (", ".join(theirs) or "not installed"),
        f"{document['seconds']:.0f} s in all, marking included",
        summary(document["summary"]),
    ]


def summary(counts: Document) -> str:
    """Return the outcome in one line."""
    return (
        f"owned: {counts['marked_owned']} of {counts['marked']} measurements of marked models, "
        f"{counts['unmarked_owned']} of {counts['unmarked']} of unmarked ones; "
        f"could not measure: {counts['not_measured']}; not run: {counts['not_run']}"
    )


def section(part: Document, *, with_difference: bool = False) -> list[str]:
    """Return what is said about one kind of endpoint."""
    texts = [served(part), table(part["rows"], with_difference)]
    reasons = [
        f"- {row['suspect']}, {row['through']}: {one_line(row['error'])}"
        for row in part["rows"]
        if row["status"] != "measured"
    ]
    return [*texts, "Not measured:\n\n" + "\n".join(reasons)] if reasons else texts


def served(part: Document) -> str:
    """Say what model was served and how it was marked."""
    text = f"Served: {part['model']}, marked "
    if part["steps"] is None:
        text += "before."
    else:
        text += (
            f"({', '.join(part['marks'])}; {part['num_bits']} bits, {part['num_texts']} texts) "
            f"in {part['steps']} steps, {part['seconds_to_mark']:.0f} s."
        )
    if "random weights" in part["model"]:
        text += " It shows that the path works, not how a trained model behaves."
    return text


def table(rows: Sequence[Document], with_difference: bool = False) -> str:
    """Return the rows."""
    columns = [*_COLUMNS, *([("difference", "difference")] if with_difference else [])]
    head = ["suspect", "through", "verdict", "exit", *(label for _, label in columns), "time, s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        verdict = row["verdict"] or row["status"]
        status = "–" if row["exit_code"] is None else str(row["exit_code"])
        cells = [row["suspect"], row["through"], verdict, status]
        cells += [number(row.get(name)) for name, _ in columns]
        cells.append("–" if row.get("seconds") is None else f"{row['seconds']:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Return a number as a reader wants it, a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def one_line(text: str | None) -> str:
    """Return an error as one line that does not break the page."""
    return " ".join((text or "no reason was given").split())[:400]
