"""The page about attacks: what they cost, what they leave.

python benchmarks/attacks_table/page.py JSON PAGE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are scripts, not a package

from attacks_table.picture import picture
from nsmark.attacks.comparison import WITNESSES_IN_WORDS, counted, markdown_table
from nsmark.attacks.expression import parse_attack
from nsmark.attacks.plan import UNTOUCHED, names_in
from nsmark.attacks.trial import Row as AttackRow
from nsmark.verification.verdict import PAIR_STATISTICS
from provenance import when_measured

Document = dict[str, Any]
Row = dict[str, Any]

INTRODUCTION = """
Made by the command below, not by hand. Every attacked model is asked the key's texts, as it would
be served, and judged by the rule `calibrated` with the key's own controls. *Similarity*: the
correlation of the cosine similarities of 300 of the task's test texts with those before the attack.
*Points lost*: accuracy of a linear classifier learned anew on the answers, in percentage points; a
fifth of the task's texts judges it, which leaves a standard error of about a point. It is below 0
where an attack trains on the task. *Seconds* are the attack's, with others running beside it.
*Degree* is the matching degree with the owner's null space, brought to one scale; *predicted* the
share of the owner's answers that a linear map of the suspect's gives (R² on texts it was not fitted
to), *aligned* the same up to a scale per text. *+2* behind a witness: two more show ownership, too.
"""
WRONG_KEY_COLUMNS = (
    "extraction_rate",
    "matching_degree",
    "derived_extraction_rate",
    "pair_code_rate",
)
FILTERS = ("rare-word-filter", "surprising-word-filter", "repeated-word-filter")


def markdown(document: Document, picture_file: str | None = None) -> str:
    """Return the page.

    Args:
        document: What was measured.
        picture_file: Name of the picture beside it, if there is one.
    """
    suites = document["suites"]
    first = suites.get(document["main_task"], [])
    parts = [
        "# What attacks cost, and what evidence they leave",
        when_measured(document.get("measured")),
        INTRODUCTION.strip(),
        WITNESSES_IN_WORDS,
        f"```console\n{document['command']}\n```",
        f"Made with {in_words(document['environment'])}.",
        *(
            f"Measured elsewhere, with {in_words(each['environment'])}: "
            f"{', '.join(f'`{attack}`' for attack in each['attacks'])}. "
            + when_measured(each.get("measured"))
            for each in document.get("elsewhere", ())
        ),
        *([document["about"]] if "about" in document else []),
        *summary(suites),
        by_witness(first),
        *(picture_section(document["main_task"], picture_file) if picture_file else ()),
        "## Pruning, by tenths",
        pruning_table(first),
        *pruning_by_task(suites),
        "## Filters: the trigger against the pair code",
        *filters_section(first),
        "## Two owners",
        "After overwriting, either owner's key is verified on the overwritten model; the second "
        "owner's also on the model as it was stolen. Which came first is told by dates alone.",
        owners_table(suites),
        "## The same attacks on the unmarked model, as far as they do not train",
        *innocent_section(document.get("innocent", [])),
    ]
    for name, rows in suites.items():
        before = next((r["utility"]["accuracy"] for r in rows if r["attack"] == UNTOUCHED), None)
        about = "" if before is None else f", accuracy {before:.3f} before any attack"
        parts += [
            f"## All attacks, task {name}{about}",
            markdown_table(list(map(AttackRow.from_mapping, rows))),
        ]
    parts += [
        "## Recovery of the extraction rate: no evidence",
        "A linear map fitted on 70 % of the texts from a model's outputs to the owner's, read on "
        "the rest. The last column is the same fit from random numbers.",
        plain_table(document["recovery"], ("model", "how", "before", "recovered", "noise")),
        "## Wrong parts of the key",
        plain_table(document["wrong_keys"], ("model", "part", *WRONG_KEY_COLUMNS)),
    ]
    return "\n\n".join(parts) + "\n"


def in_words(environment: dict[str, Any]) -> str:
    """Return what numbers were made with."""
    return ", ".join(f"{name} {value}" for name, value in environment.items())


def picture_section(task: str, file: str) -> list[str]:
    """Return the picture and what it shows."""
    return [
        f"![What attacks cost, against what they leave of the pair code]({file})",
        f"Each mark is one attack, on task {task}; the line joins those that no other beats. Below "
        "0 the pair code shows nothing; other witnesses may.",
    ]


def summary(suites: dict[str, list[Row]]) -> list[str]:
    """Return how often ownership is shown, and after what it is not."""
    lines = []
    for name, rows in suites.items():
        lines.append(f"**{name}**: {counted(list(map(AttackRow.from_mapping, rows)))}")
        lost = [row for row in rows if row.get("error") is None and row["verdict"] != "owned"]
        lines += ["\n".join(f"- not shown after {costs(row)}" for row in lost)] if lost else []
        if any("student=reference" in row["attack"] for row in lost):
            lines.append(
                "`student=reference` teaches the unmarked model, which costs nothing: whoever has "
                "it had little to steal. What was learned from clean answers shows no mark."
            )
    return lines


_READ = {"extraction_rate", "derived_extraction_rate"}


def by_witness(rows: Sequence[Row]) -> str:
    """Return how many attacks each kind of witness outlasts on the main task."""
    tried = [r for r in rows if r.get("error") is None and r["attack"] != UNTOUCHED]
    shown = [set(row["passed"]) for row in tried if row["verdict"] == "owned"]
    kinds = {
        "the pair code": lambda each: bool(each & PAIR_STATISTICS),
        "what is read from triggered answers": lambda each: bool(each & _READ),
        "comparison with the owner's answers, the null space among it": lambda each: bool(
            each - _READ - PAIR_STATISTICS
        ),
    }
    told = [f"{words} {sum(map(counts, shown))}" for words, counts in kinds.items()]
    alone = sum(each <= PAIR_STATISTICS for each in shown)
    return (
        f"By kind of witness, of all {len(tried)} on the first task: {'; '.join(told)}. "
        f"{alone} are shown by the pair code alone."
    )


def costs(row: Row) -> str:
    """Return an attack and its price."""
    utility = row["utility"]
    return (
        f"`{row['attack']}`: similarity {utility['similarity']:.3f}, "
        f"{utility['points_lost']:.1f} points lost"
    )


def pruned_rows(rows: Sequence[Row], attacks: list[str]) -> Iterator[tuple[Any, Row]]:
    """Yield the rows of attacks that begin with pruning, each with how it was done."""
    for row in rows:
        if row.get("error") is None and names_in(row["attack"]) == attacks:
            yield parse_attack(row["attack"])[0].settings, row


def pruning_table(rows: Sequence[Row]) -> str:
    """Return accuracy, similarity and evidence by how much is pruned, and where."""
    body = [
        {"where": settings.scope, "share": settings.share, **columns_of(row)}
        for settings, row in pruned_rows(rows, _ALONE)
    ]
    body.sort(key=lambda each: (each["where"], each["share"]))
    return plain_table(body, ("where", "share", *COLUMNS))


_MOST_POINTS = 5.0
"""A model that has lost more is not the one that was stolen."""
_ALONE, _TUNED = ["pruning"], ["pruning", "fine-tuning"]


def pruned_shares(rows: Sequence[Row], attacks: list[str]) -> dict[float, Row]:
    """Return the rows in which every matrix was pruned by itself, by the share that was."""
    found = {how.share: row for how, row in pruned_rows(rows, attacks) if how.scope == "layer"}
    return dict(sorted(found.items()))


def points_behind_whole(rows: Sequence[Row], row: Row) -> float | None:
    """Return what a pruned and fine-tuned model lacks of the whole one tuned the same way."""
    whole = next(
        (r for r in rows if r["attack"] == tuning_of(row) and r.get("error") is None), None
    )
    if whole is None:
        return None
    return 100 * float(whole["utility"]["accuracy"] - row["utility"]["accuracy"])


def tuning_of(row: Row) -> str:
    """Return how a model was tuned after it was pruned."""
    return str(row["attack"]).split(" + ")[-1]


def pruning_by_task(suites: dict[str, list[Row]]) -> list[str]:
    """Return what pruning costs on every task, alone and with the training that makes up for it."""
    alone = {name: pruned_shares(rows, _ALONE) for name, rows in suites.items()}
    tuned = {name: pruned_shares(rows, _TUNED) for name, rows in suites.items()}
    if not all(tuned.values()):
        return []
    lost = {
        name: {share: points_behind_whole(rows, row) for share, row in tuned[name].items()}
        for name, rows in suites.items()
    }
    tuning = tuning_of(next(iter(next(iter(tuned.values())).values())))
    return [
        "### Points lost on every task, by how much of every matrix is pruned",
        "By the measure of this page, a linear classifier learned anew on the answers, pruning "
        "costs little however much goes: what is left at the end are the words' embeddings, which "
        "are not pruned, and a classifier needs no more.",
        by_share(alone, lambda name, share: alone[name][share]["utility"]["points_lost"]),
        f"What a thief of a language model wants is to tune it. The same models after `{tuning}` "
        "on the task, compared with the whole model after it:",
        by_share(tuned, lambda name, share: lost[name][share]),
        "\n".join(f"- {name}: {how_far(lost[name], alone[name], tuned[name])}" for name in suites),
    ]


def by_share(
    tasks: dict[str, dict[float, Row]], points: Callable[[str, float], float | None]
) -> str:
    """Return a table of points lost, and on how many tasks ownership is shown."""
    body = []
    for share in sorted(set.intersection(*(set(shares) for shares in tasks.values()))):
        shown = sum(rows[share]["verdict"] == "owned" for rows in tasks.values())
        values = {name: points(name, share) for name in tasks}
        rounded = {name: None if v is None else round(v, 1) for name, v in values.items()}
        body.append({"share": share, "shown on": f"{shown} of {len(tasks)}", **rounded})
    return plain_table(body, ("share", "shown on", *tasks))


def how_far(lost: dict[float, float | None], *kinds: dict[float, Row]) -> str:
    """Return up to which share little is lost, and whether ownership is shown until there."""
    known = {share: points for share, points in lost.items() if points is not None}
    if len(known) < len(lost):
        return "the whole model was not tuned so"
    # Up to the first loss of so much, whatever chance wins back later.
    too_much = [share for share, points in known.items() if points > _MOST_POINTS]
    within = [share for share in lost if not too_much or share < min(too_much)]
    if not within:
        return f"more than {_MOST_POINTS:.0f} points lost at once"
    missed = sorted(
        share
        for share in within
        if any(share in rows and rows[share]["verdict"] != "owned" for rows in kinds)
    )
    but = f", but not after {', '.join(f'{share:.0%}' for share in missed)}" if missed else ""
    return f"at most {_MOST_POINTS:.0f} points lost up to {max(within):.0%}, shown{but}"


def filters_section(rows: Sequence[Row]) -> list[str]:
    """Return what filters of queries leave; rows of before its signs were bet on say so."""
    told = (
        "What the trigger brings is extraction; the pair code's words are ordinary ones. Filters "
        "made from the users' own texts cost less, and are on [a page of their own](filters.md)."
    )
    columns = (*FILTER_COLUMNS, "p by betting")
    if not any("pair_wager_p_value" in (row.get("statistics") or {}) for row in rows):
        told += (
            " Here the signs of the pair code were counted only, not bet on as well "
            "([0015](../adr/0015-betting.md))."
        )
        columns = FILTER_COLUMNS
    return [told, table_of(rows, lambda row: names_in(row["attack"])[0] in FILTERS, columns)]


COLUMNS = ("verdict", "accuracy", "points lost", "similarity", "extraction", "pairs", "p")
FILTER_COLUMNS = ("attack", *COLUMNS)


def columns_of(row: Row) -> Row:
    """Return what short tables show of an attack."""
    statistics, utility = row["statistics"] or {}, row["utility"]
    return {
        "attack": row["attack"],
        "verdict": row["verdict"].replace("_", " "),
        "accuracy": utility["accuracy"],
        "points lost": round(utility["points_lost"], 1),
        "similarity": utility["similarity"],
        "extraction": statistics.get("extraction_rate"),
        "pairs": statistics.get("pair_code_rate"),
        "p": statistics.get("pair_code_p_value"),
        "p by betting": statistics.get("pair_wager_p_value"),
    }


def table_of(rows: Sequence[Row], is_wanted: Callable[[Row], bool], columns: Sequence[str]) -> str:
    """Return some rows, shortly."""
    wanted = [row for row in rows if row.get("error") is None and is_wanted(row)]
    return plain_table([columns_of(row) for row in wanted], tuple(columns))


def owners_table(suites: dict[str, list[Row]]) -> str:
    """Return what both owners can show."""
    body = [
        {
            "task": task,
            "attack": row["attack"],
            "first owner": row["verdict"].replace("_", " "),
            "second owner": other["verdict"].replace("_", " "),
            "second owner's extraction": (other["statistics"] or {}).get("extraction_rate"),
            "second owner, before": other["verdict_on_the_stolen_model"].replace("_", " "),
        }
        for task, rows in suites.items()
        for row in rows
        for other in row.get("other_owners") or ()
    ]
    return plain_table(
        body,
        (
            "task",
            "attack",
            "first owner",
            "second owner",
            "second owner's extraction",
            "second owner, before",
        ),
    )


def innocent_section(rows: Sequence[Row]) -> list[str]:
    """Return whether anybody is accused who should not be."""
    run = [row for row in rows if row.get("error") is None]
    if not run:
        return ["Not measured yet."]
    accused = [row for row in run if row["verdict"] == "owned"]
    rates = [
        rate for row in run if (rate := (row["statistics"] or {}).get("pair_code_rate")) is not None
    ]
    told = f"{len(accused)} of {len(run)} are accused under the same key, by the same rule."
    if rates:
        told += f" The pair code reads between {min(rates):.3f} and {max(rates):.3f} of its signs."
    return [told, *(f"- accused after {costs(row)}" for row in accused)]


def plain_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
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


def write_page(document: Document, path: Path) -> None:
    """Write the page, and its picture beside it."""
    drawn = picture(document["suites"].get(document["main_task"], []))
    beside = path.with_suffix(".svg")
    if drawn is not None:
        beside.write_text(drawn, encoding="utf-8")
    path.write_text(markdown(document, None if drawn is None else beside.name), encoding="utf-8")


if __name__ == "__main__":
    write_page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
