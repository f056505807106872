"""What filters of queries cost a thief, and what evidence they leave: by whose words they go.

    python benchmarks/filters.py --key KEY --marked DIR --reference DIR --data DIR --json OUT

A filter made from any texts the thief has found takes out what his users write; one that is made
from what they send hardly costs him anything. Both are tried on every task: KEY and the marked
folder are those of ``nsmark embed``, with a pair code; DIR after ``--data`` holds the tasks and
``wikitext-2``, as for ``benchmarks/attacks.py``. ``--work`` keeps the rows: an interrupted run goes
on. ``--markdown`` writes the page, too.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from attacks import described, environment, materials, parser_of, stored, telling
from attacks_table.page import in_words
from nsmark.attacks.comparison import COSTS
from nsmark.attacks.expression import parse_attack, written
from nsmark.attacks.plan import UNTOUCHED
from nsmark.attacks.suite import run_suites
from nsmark.keyfile import read_key
from nsmark.verification.verdict import PAIR_LINES
from provenance import measured, when_measured

Row = dict[str, Any]

BY_ORDINARY_TEXTS = (
    *(f"rare-word-filter[keep={keep}]" for keep in (20000, 10000, 5000, 2000)),
    *(f"surprising-word-filter[threshold={nats}]" for nats in (14, 10)),
)
BY_THE_TASKS = (
    *(f"rare-word-filter[keep={keep},texts=task]" for keep in (200000, 10000, 5000, 2000)),
    *(f"surprising-word-filter[threshold={nats},texts=task]" for nats in (14, 10)),
    "rare-word-filter[keep=200000,texts=task] + ll-lfea",
    "rare-word-filter[keep=200000,texts=task] + whitening",
)
INTRODUCTION = """
Made by the command below, not by hand. A thief takes words out of every query before the model sees
it. He counts words either in ordinary texts (WikiText-2), which costs him what his users write
otherwise, or in texts like theirs: those of the task that a classifier learns from, without their
labels. *Points lost*: accuracy of a linear classifier learned anew on the filtered answers, judged
on a fifth of the task's texts, none of which a filter was made from; that leaves a standard error
of one to two points. *Extraction* needs the trigger, a rare word. The pair code needs ordinary
words, of which each filter silences some: *pairs read* counts all signs by the contract's test
(half are right by chance), *p by betting* is of the same answers ([0015](../adr/0015-betting.md)).
"""


def plan() -> list[str]:
    """Return what is tried on every task."""
    filters = [written(parse_attack(each)) for each in (*BY_ORDINARY_TEXTS, *BY_THE_TASKS)]
    return [UNTOUCHED, *filters]


def markdown(document: dict[str, Any]) -> str:
    """Return the page."""
    parts = [
        "# Filters of queries, and the pair code",
        when_measured(document.get("measured")),
        INTRODUCTION.strip(),
        f"```console\n{document['command']}\n```",
        f"Made with {in_words(document['environment'])}.",
        document["about"],
        *(counted(name, rows) for name, rows in document["suites"].items()),
    ]
    for name, rows in document["suites"].items():
        accuracy = rows[0]["utility"]["accuracy_before"]
        parts += [f"## Task {name}, accuracy {accuracy:.3f} without a filter", table(rows)]
    innocent = document["innocent"]
    accused = [row["attack"] for row in innocent if row["verdict"] == "owned"]
    parts += [
        "## The same filters on the unmarked model",
        f"{len(accused)} of {len(innocent)} are accused under the same key"
        + (f": {', '.join(f'`{each}`' for each in accused)}." if accused else "."),
        table(innocent),
    ]
    return "\n\n".join(parts) + "\n"


def counted(name: str, rows: Sequence[Row]) -> str:
    """Return in a sentence what counting and betting show, by what the filters cost."""
    told = []
    for words, lowest, highest in COSTS:
        own = [row for row in rows[1:] if lowest < row["utility"]["points_lost"] <= highest]
        if own:
            by = [sum(is_beyond(row, *line) for row in own) for line in PAIR_LINES]
            told.append(
                f"of {len(own)} that cost {words}, {by[0]} by counting signs, {by[1]} by betting"
            )
    return f"**{name}**: ownership is shown after filters by the pair code: {'; '.join(told)}."


def is_beyond(row: Row, name: str, line: float) -> bool:
    """Return whether a way of reading the pair code shows ownership."""
    value = row["statistics"][name]
    return value is not None and value <= line


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    heads = ("filter", "verdict", "points lost", "similarity", "extraction", "pairs read")
    lines = [
        f"| {' | '.join(heads)} | p by counting | p by betting |",
        "|" + "---|" * (len(heads) + 2),
    ]
    for row in rows:
        found, utility = row["statistics"], row["utility"]
        cells = (
            row["attack"],
            row["verdict"].replace("_", " "),
            f"{utility['points_lost']:.1f}",
            f"{utility['similarity']:.3f}",
            "–" if found["extraction_rate"] is None else f"{found['extraction_rate']:.3f}",
            *(
                "–" if found[name] is None else f"{found[name]:{how}}"
                for name, how in (
                    ("pair_code_rate", ".3f"),
                    ("pair_code_p_value", ".0e"),
                    ("pair_wager_p_value", ".0e"),
                )
            ),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--tasks", nargs="*", default=[], help="these of the data folder's alone")
    arguments = parser.parse_args(words)
    key, known = read_key(arguments.key), materials(arguments)
    if key.pairs is None:
        parser.error("the key holds no pair code")
    missing = set(arguments.tasks) - set(known)
    if missing:
        parser.error(f"there are no tasks {', '.join(sorted(missing))}")
    known = {name: known[name] for name in arguments.tasks or known}
    started = time.perf_counter()
    how: dict[str, Any] = {"jobs": arguments.jobs, "on_trial": telling()}
    with tempfile.TemporaryDirectory(prefix="filters-") as temporary:
        work = arguments.work or Path(temporary)
        parts = {name: (material, plan()) for name, material in known.items()}
        suites = stored(run_suites(key, arguments.marked, work, parts, **how))
        first = next(iter(known.values()))
        innocent = stored(
            run_suites(
                key, arguments.reference, work, {"": (first, plan())}, is_innocent=True, **how
            )
        )[""]
    failed = [row for rows in (*suites.values(), innocent) for row in rows if row.get("error")]
    if failed:
        sys.exit(f"{failed[0]['attack']}: {failed[0]['error']}")
    tasks = f" --tasks {' '.join(arguments.tasks)}" if arguments.tasks else ""
    preset = f" --preset {arguments.preset[0]}" if arguments.preset else ""
    document = {
        "measured": measured(arguments.preset, rule=True, device=arguments.device),
        "command": "python benchmarks/filters.py --key KEY --marked DIR --reference DIR --data DIR"
        f"{preset}{tasks} --texts {arguments.texts} --task-texts {arguments.task_texts}"
        f" --jobs {arguments.jobs} --json OUT --markdown OUT",
        "environment": environment(arguments),
        "about": described(key),
        "model_sha256": key.model_digest,
        "seconds": round(time.perf_counter() - started),
        "suites": suites,
        "innocent": innocent,
    }
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(document), encoding="utf-8")


if __name__ == "__main__":
    main()
