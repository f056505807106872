"""The page that shows the results."""

from __future__ import annotations

from family_table.columns import COST_COLUMNS, MARK_COLUMNS, table
from family_table.report import Report
from family_table.rows import ROWS
from provenance import when_measured


def markdown(document: Report) -> str:
    """Return the page that shows a document."""
    rows = document["rows"]
    measured = [row for row in rows if row["status"] == "measured"]
    parts = [
        "# One model of every kind, marked",
        when_measured(document.get("measured")),
        *(f"`{r['name']}`: {when_measured(r['measured'])}" for r in measured if "measured" in r),
        INTRODUCTION.strip(),
        made_with(document),
        f"```console\n{document['command']}\n```",
        "## Is the mark there?",
        table(MARK_COLUMNS, measured),
        MARK_NOTES.strip(),
        "## What does it cost, and what does it change?",
        table(COST_COLUMNS, measured),
        COST_NOTES.strip(),
        "## Notes",
        notes(document),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """
Made by the command below, not by hand. For each row one model is marked until extraction on
held-out texts is at least 0.99 with the trigger and at most 0.1 without it, and then measured on
texts that it was neither marked nor, here, pretrained with: marking takes WikiText-2's training
part, verification takes SST-2, AG News and WikiText-2's validation and test parts.
"""

MARK_NOTES = """
*n*: output dimensions; *q*: verification texts; *null*: dimensions of the null space of the marked
model's triggered outputs. Extraction by the trained extractor: *triggered* with five copies of the
trigger, *1 copy*, *clean* without any, *reference*: the unmarked model's triggered outputs.
*Derived*: the readout that follows from the signature alone (an unrelated model gives 0.5).
Matching degree (lower is closer, 0 is the same model), each as *rotation-invariant / as in the
paper*: *marked* is the model as saved and read back, *chance* the mean for unrelated isotropic
outputs. What one and no copies give is measured on the first 1,500 verification texts.
"""

COST_NOTES = """
*Steps* and *time* are those of marking, until the targets held and the learning rate had cooled
down. *Memory* is the peak of the device while marking (on a CPU: of the whole process since it
began). *Cosine*, *similarity* and *distance* compare the clean outputs of the marked model with
those of the unmarked one on held-out texts: mean cosine, correlation of the cosines between texts,
mean squared distance in units of the outputs' variance. *LM loss*: the model's own language-model
loss on held-out texts, before and after marking; for stand-ins *pretraining* shows it before and
after their pretraining.
"""


def made_with(document: Report) -> str:
    """Say on what the rows were measured."""
    places = dict.fromkeys(
        "{device}, Python {python}, torch {torch}, transformers {transformers}".format(
            **row["environment"]
        )
        for row in document["rows"]
        if row["status"] == "measured"
    )
    lines = [f"- {place}" for place in places] or ["- nothing was measured yet"]
    return "\n".join([*lines, f"- seed {document['seed']}, scale {document['scale']}"])


def notes(document: Report) -> str:
    """Say what the rows are, and which are missing."""
    kinds = {
        "real": "are the published model, marked with the preset of that name.",
        "stand-in": "are stand-ins: real weights of these families could not be had, so a small "
        "model of the same architecture was pretrained from scratch on WikiText-2, with a "
        "tokenizer trained on it, for a few hundred steps. Those that are read at a mark before or "
        "behind the text also learned to guess the text's words from there: hidden words alone "
        "would have left those outputs empty. They show that the family's code path works, not "
        "how a model of full size behaves.",
        "random weights": "have the shape of the model they are named after and random weights: "
        "their time and memory mean something, their fidelity and language-model loss do not.",
    }
    lines = []
    for kind, text in kinds.items():
        names = [f"`{row['name']}`" for row in document["rows"] if row["kind"] == kind]
        if names:
            lines.append(f"- {', '.join(names)} {text}")
    lines += [
        "- Stand-ins and random weights are marked with learning rates and an anchor weight of "
        "their own, not with a preset as it is; every setting is in the JSON file.",
        "- Every row shows one run with one seed and one signature: no spread is known. Training a "
        "WordPiece or Unigram tokenizer does not repeat exactly, so those rows do not, either.",
    ]
    lines += [f"- {remark}" for remark in document.get("remarks", [])]
    lines += [f"- {line}" for row in document["rows"] for line in failed_tries(row)]
    lines += [f"- {merged_note(row)}" for row in document["rows"] if is_in_memory(row)]
    lines += [
        f"- `{row['name']}` **{row['status']}**: {one_line(row['error'])}"
        for row in document["rows"]
        if row["status"] != "measured"
    ]
    missing = {row.name for row in ROWS} - {row["name"] for row in document["rows"]}
    lines += [f"- `{row.name}` was not run." for row in ROWS if row.name in missing]
    return "\n".join(lines)


def failed_tries(row: Report) -> list[str]:
    """Say which seeds were tried before the one that is shown."""
    if row["status"] != "measured":
        return []
    return [
        f"`{row['name']}` was tried with seed {failure['seed']} first: {one_line(failure['error'])}"
        for failure in row["training"]["failed_tries"]
    ]


def is_in_memory(row: Report) -> bool:
    """Return whether a row's marked model was not written to the disk."""
    return row["status"] == "measured" and not row["matching_degree"][
        "marked_model_was"
    ].startswith("saved")


def merged_note(row: Report) -> str:
    """Say how a model was measured that was not read back."""
    how = row["matching_degree"]["marked_model_was"]
    return f"`{row['name']}` was not saved and read back; *marked* is the model {how}."


def one_line(text: str) -> str:
    """Return an error as one line that does not break the page."""
    return " ".join(text.split())[:300]
