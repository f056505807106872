"""The page about the pair code, made from the numbers alone; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pair_table.changes import PLAIN
from pair_table.targets import all_targets, p_value, rate
from provenance import when_measured

Document = dict[str, Any]

INTRODUCTION = """
Made by the command below, not by hand; several processes may have measured pieces of it side by
side (`--only`, `benchmarks/on_one_gpu.py`). A model is marked with a pair code
([what that is](../pair-code.md)), and the table is read from suspects: *rate* is the share of its
entries read rightly by a probe that never saw them, chance is 0.5. Every measurement is on this
page, those that failed too.
"""
UNREAD = "Not measured yet."


def markdown(document: Document) -> str:
    """Return the whole page."""
    parts = document["parts"]
    measured = dict.fromkeys(when_measured(part.get("measured")) for part in parts.values())
    blocks = ["# What the pair code withstands", *measured, INTRODUCTION.strip(), *made(document)]
    blocks += ["## Targets", targets_table(document)]
    for name, title, section in (
        ("mark", "The mark, and what it changes", mark_section),
        ("attacks", "Attacks", attacks_section),
        ("validity", "Keys that nobody embedded", validity_section),
        ("kinds", "Models trained from scratch", kinds_section),
        ("limits", "Limits", limits_section),
    ):
        blocks.append(f"## {title}")
        blocks += section(parts[name]) if name in parts else [UNREAD]
        blocks += [f"- {note}" for note in parts.get(name, {}).get("notes", [])]
    return "\n\n".join(blocks) + "\n"


def made(document: Document) -> list[str]:
    """Return how the page was made; parts may have been measured one by one."""
    parts = document["parts"]
    commands = dict.fromkeys(part["command"] for part in parts.values())
    places: dict[str, list[str]] = {}
    for name, part in parts.items():
        for each in part["environments"]:
            told = ", ".join(f"{what} {value}" for what, value in each.items())
            places.setdefault(told, []).append(name)
    lines = ["```console\n" + "\n".join(commands) + "\n```"]
    lines += [f"Made with {place}: {', '.join(names)}." for place, names in places.items()]
    digests = {part["model_sha256"] for part in parts.values() if "model_sha256" in part}
    if len(digests) > 1:
        lines.append(
            "Not all parts were measured on the same weights: the model was marked anew in "
            "between, with the same signature."
        )
    return lines


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def targets_table(document: Document) -> str:
    """Return what was wanted and reached."""
    words = {True: "met", False: "**not met**", None: "–"}
    return table(
        ("", "wanted", "reached", ""),
        [(t.what, t.wanted, t.reached, words[t.met]) for t in all_targets(document)],
    )


def reading(row: Document) -> list[str]:
    """Return rate, p-value and counts of a reading."""
    if row["rate"] is None:
        return ["–", "–", row.get("error", "")]
    right, halves = row["right"], row["halves"]
    counts = ", ".join(f"{r} of {h}" for r, h in zip(right, halves, strict=True))
    return [rate(row["rate"]), p_value(row["p"]), counts]


READING = ("rate", "p", "right in each half")


# --- parts ---------------------------------------------------------------------------------------


def mark_section(part: Document) -> list[str]:
    """Return what marking took and changed."""
    found, held_out = part["fidelity"], part["held_out"]
    kinds = {
        "clean": "clean texts",
        "one_word": "texts with one of the words (two copies)",
        "word_alone": "each word alone",
        "pair": "texts with a pair",
    }
    return [
        f"{part['model']}, s = {part['size']}, r = {part['repeats']}: {part['steps']} steps, "
        f"{part['training_seconds']:.0f} s of training; on held-out texts pairs "
        f"{rate(held_out['pairs'])}, triggered {rate(held_out['triggered'])}, untriggered "
        f"{rate(held_out['untriggered'])}, reference {rate(held_out['reference'])}.",
        table(
            ("cosine, marked to unmarked", "texts", "mean", "lowest 1 %"),
            [
                (label, each["count"], f"{each['mean']:.5f}", f"{each['lowest_1_percent']:.5f}")
                for label, each in ((label, found[name]) for name, label in kinds.items())
            ],
        ),
        f"Correlation of the clean texts' similarities: {found['similarity_correlation']:.5f}. "
        "These texts were held out, but are of the kind that the mark was trained with; on others "
        "both are lower ([fidelity](fidelity.md)).",
        table(
            ("model", *READING), [(name, *reading(row)) for name, row in part["readings"].items()]
        ),
        *others_section(part.get("other_witnesses")),
    ]


def attacks_section(part: Document) -> list[str]:
    """Return the suspects as they are, then behind every change."""
    rows = part["rows"]
    changes = list(dict.fromkeys(row["change"] for row in rows))
    bases = [
        base
        for base in dict.fromkeys(row["base"] for row in rows)
        if sum(row["base"] == base for row in rows) > 1
    ]
    found = {(row["base"], row["change"]): row for row in rows}
    return [
        "### Suspects as they are",
        table(
            ("suspect", *READING),
            [(row["base"], *reading(row)) for row in rows if row["change"] == PLAIN],
        ),
        "### The marked model behind changes of its outputs",
        table(
            ("change", *READING),
            [(row["change"], *reading(row)) for row in rows if row["base"] == "marked"],
        ),
        "### Rates of all suspects behind changes",
        table(
            ("suspect", *(f"{number}" for number in range(1, len(changes) + 1))),
            [
                (base, *(rate(found.get((base, change), {}).get("rate")) for change in changes))
                for base in bases
            ],
        ),
        "Changes: " + "; ".join(f"({n}) {change}" for n, change in enumerate(changes, 1)) + ".",
        "A random sign per text is expected to hide the code: the verifier has nothing by which to "
        "undo it. It makes the outputs useless for comparing texts, too.",
    ]


def others_section(found: Document | None) -> list[str]:
    """Return what the witnesses beside the pair code say."""
    if found is None:
        return []
    named = {
        "extraction_rate": "extraction",
        "derived_extraction_rate": "derived",
        "invariant_matching_degree": "matching degree",
        "subspace_overlap": "overlap",
        "predictability": "predictability",
    }
    rows = [(model, *(rate(values[name]) for name in named)) for model, values in found.items()]
    return [
        "The other witnesses, on triggered texts:",
        table(("model", *named.values()), rows),
        "The less of the marked model's answers a linear map of the unmarked one's predicts, the "
        "more noise, pruning and fine-tuning the null space outlasts.",
    ]


def validity_section(part: Document) -> list[str]:
    """Return shares below each level, and tests of the counts."""
    levels = [level["alpha"] for level in part["cells"][0]["levels"]]
    shares = [
        (
            one["model"],
            one["change"],
            one["count"],
            *(
                f"{level['share']:.4f} (≤ {level['allowed']:.4f})"
                + ("" if level["within"] else " **beyond**")
                for level in one["levels"]
            ),
            f"{one['smallest_p']:.1e}",
        )
        for one in part["cells"]
    ]
    counts = [
        (
            one["model"],
            one["change"],
            f"{one['mean_rate']:.4f}",
            "–" if one["sd_rate"] is None else f"{one['sd_rate']:.4f}",
            f"{one['binomial_sd']:.4f}",
            *(f"{each['p']:.3f} ({each['bins']} bins)" for each in one["halves"]),
        )
        for one in part["cells"]
    ]
    return [
        f"{part['keys']} random signatures, each with its own words, texts and table; "
        f"{part['queries']:,} questions, {part['queries_per_second']:,} a second. "
        f"{part['unreadable']} readings were impossible. On a GPU models answer in bfloat16 here, "
        "which is as innocent.",
        "Share with p ≤ α, in brackets the most that 99 % of exact p-values' samples show:",
        table(("model", "outputs", "keys", *(f"α = {a:g}" for a in levels), "smallest p"), shares),
        "Rates, and χ² tests of each half's counts against the binomial:",
        table(
            ("model", "outputs", "mean rate", "sd", "binomial sd", "first half p", "second half p"),
            counts,
        ),
    ]


def kinds_section(part: Document) -> list[str]:
    """Return each model trained from scratch."""
    blocks = []
    for name, kind in part["kinds"].items():
        mark = kind["mark"]
        outcome = "reached its targets" if mark["error"] is None else f"**{mark['error']}**"
        blocks += [
            f"### {name}: {kind['what']}",
            f"{kind['output_dim']} dimensions, read at `{kind['pooling']}`; {mark['steps']} steps: "
            f"{outcome}. Held-out pairs {rate(mark['held_out']['pairs'])}; cosine of clean outputs "
            f"{kind['clean_cosine']:.4f}, correlation of similarities "
            f"{kind['similarity_correlation']:.4f}. Made in {kind['seconds']['make']} s, marked in "
            f"{kind['seconds']['mark']} s.",
            table(
                ("model", "read from", "change", *READING),
                [(row["model"], row["read"], row["change"], *reading(row)) for row in kind["rows"]],
            ),
        ]
    return blocks


def limits_section(part: Document) -> list[str]:
    """Return what ends the pair code, and what does not."""
    return [
        "### Questions altered on their way",
        table(("questions", *READING), [(r["queries"], *reading(r)) for r in part["queries"]]),
        "Shuffling and dropping stand for paraphrasing, without a paraphrasing model. A paraphrase "
        "that replaces the words takes the code with them.",
        "### Students of clean answers",
        table(
            ("start", "texts", "epochs", "cosine to teacher", *READING),
            [
                (r["start"], r["texts"], r["epochs"], f"{r['cosine_to_teacher']:.3f}", *reading(r))
                for r in part["students"]
            ],
        ),
        "### Long re-training",
        table(
            ("task", "learning rate", "steps", *READING),
            [
                (r["task"], f"{r['rate_of_learning']:g}", r["step"], *reading(r))
                for r in part["retraining"]
            ],
        ),
        "### A thief who searches the words",
        *search_section(part["word_search"]),
        "### A thief who knows the words",
        f"He reads the table with {part['undo'][0]['queries_to_read_the_table']} questions. "
        "Without the unmarked model he trains texts with both words towards what the marked model "
        "says of them with either word alone:",
        table(
            ("texts per pair", "steps", "clean cosine to the marked model", *READING),
            [
                (
                    r["texts_per_pair"],
                    r["steps"],
                    f"{r['clean_cosine_to_marked']:.4f}",
                    *reading(r),
                )
                for r in part["undo"]
            ],
        ),
        "Overwriting is among the attacks above.",
    ]


def search_section(found: Document) -> list[str]:
    """Return what somebody sees who has the marked model and the published list."""
    estimates = [
        "unknown, no pair stands out" if found[name] is None else f"about {found[name]:,}"
        for name in ("queries_pair_by_pair", "queries_by_shortlist")
    ]
    return [
        f"He has the marked model and the published list of {found['list']:,} words. Over "
        f"{found['texts']} texts he computes how two words interact, f(a, b) − f(a) − f(b) + f(∅): "
        f"{found['true_pairs']} true pairs against {found['other_pairs']:,} other pairs of "
        f"{found['words']} words.",
        table(
            (
                "model",
                "AUC of single words",
                "AUC of pairs",
                "interaction of true pairs",
                "of others",
            ),
            [
                (
                    name,
                    rate(found[name]["single_word_auc"]),
                    rate(found[name]["pair_auc"]),
                    rate(found[name]["mean_true"]),
                    rate(found[name]["mean_other"]),
                )
                for name in ("marked", "reference")
            ],
        ),
        f"{found['share_of_true_pairs_above_alarm']:.0%} of the true pairs lie beyond 99.9 % of "
        f"the others. Estimated questions to find the words: {estimates[0]} by trying pairs; "
        f"{estimates[1]} where single words give a shortlist of {found['shortlist']:,}; "
        f"{found['queries_to_try_all_pairs']:,} would try all pairs. Several words in one text try "
        "many pairs at once and may need fewer; that was not measured.",
    ]
