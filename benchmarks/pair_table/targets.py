"""What was wanted and what was reached, from the numbers alone; no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pair_table.changes import COARSE, PLAIN, REQUIRED

Document = dict[str, Any]
MOST_P = 1e-30
LEAST_CHI_SQUARE = 0.01
SECOND_OWNER = ", the second owner's key"
"""How rows end that are read with the key of somebody who marked the model again."""
_STRONG, _FAIR = 0.98, 0.95
AFTER_TUNING = (
    "linear map",
    "linear map, unit length",
    "whitened",
    "10 % noise per dimension, linear map",
    "10 % isotropic noise, linear map",
    "30 % isotropic noise, linear map",
)
"""Changes that were tried on fine-tuned models, too, when the targets were set."""


@dataclass(frozen=True)
class Target:
    """One line of the table of targets."""

    what: str
    wanted: str
    reached: str
    met: bool | None
    """None where it was not measured."""

    @classmethod
    def unknown(cls, what: str, wanted: str, why: str = "not measured") -> Target:
        """Return a line without a number."""
        return cls(what, wanted, why, None)


def all_targets(document: Document) -> list[Target]:
    """Return every target, measured or not."""
    parts = document["parts"]
    targets = attack_targets(parts.get("attacks"))
    targets += validity_targets(parts.get("validity"))
    targets += fidelity_targets(parts.get("mark"))
    targets.append(accuracy_target(document.get("accuracy")))
    return targets + kind_targets(parts.get("kinds"))


# --- attacks -----------------------------------------------------------------------------------


def attack_targets(part: Document | None) -> list[Target]:
    """Return what is wanted of the marked model and of what thieves make of it."""
    rows = [] if part is None else part["rows"]

    def line(
        what: str, least: float, wanted: Callable[[Document], bool], most: float | None = None
    ) -> Target:
        return rate_target(what, [row for row in rows if wanted(row)], least, most)

    def plain(*starts: str) -> Callable[[Document], bool]:
        return lambda row: row["change"] == PLAIN and row["base"].startswith(starts)

    def marked(changes: Any) -> Callable[[Document], bool]:
        return lambda row: row["base"] == "marked" and row["change"] in changes

    tasks = dict.fromkeys(
        row["base"]
        for row in rows
        if row["base"].startswith("fine-tuned") and "pruned" not in row["base"]
    )
    return [
        line("marked model", _STRONG, marked({PLAIN}), MOST_P),
        line("behind each change of its outputs", _STRONG, marked(REQUIRED), MOST_P),
        line("8 bits or signs of its outputs", _FAIR, marked(COARSE)),
        line("pruned 20 to 40 %", _STRONG, plain("pruned 20%", "pruned 30%", "pruned 40%"), MOST_P),
        line("pruned 50 %", _FAIR, plain("pruned 50%")),
        line("feed-forward layers pruned 50 to 90 %", _STRONG, plain("feed-forward"), MOST_P),
        line("8-bit weights, weights + noise", _STRONG, plain("8-bit", "weights +"), MOST_P),
        line(
            f"fine-tuned ({len(tasks)} of 5 tasks measured)",
            _STRONG,
            lambda row: row["change"] == PLAIN and row["base"] in tasks,
            MOST_P,
        ),
        line("fine-tuned, then pruned 30 %", _STRONG, _tuned_and_pruned, MOST_P),
        line(
            "fine-tuned, behind a map, whitening, noise + map",
            _STRONG,
            lambda row: row["change"] in AFTER_TUNING and row["base"] in tasks,
            MOST_P,
        ),
        line(
            "overwritten by others",
            _STRONG,
            lambda row: plain("overwritten")(row) and not row["base"].endswith(SECOND_OWNER),
            MOST_P,
        ),
        # Of a smaller table: 64 signs cannot give such a p-value.
        line(
            "overwritten, the second owner's own table",
            _STRONG,
            lambda row: plain("overwritten")(row) and row["base"].endswith(SECOND_OWNER),
        ),
    ]


def _tuned_and_pruned(row: Document) -> bool:
    return (
        row["change"] == PLAIN
        and row["base"].startswith("fine-tuned")
        and row["base"].endswith("pruned 30%")
    )


def rate_target(what: str, rows: Sequence[Document], least: float, most: float | None) -> Target:
    """Compare the worst of some readings with a rate and a p-value."""
    wanted = f"rate ≥ {least}" + ("" if most is None else f", p ≤ {most:.0e}")
    if not rows:
        return Target.unknown(what, wanted)
    failed = [
        row
        for row in rows
        if row["rate"] is None or row["rate"] < least or (most is not None and row["p"] > most)
    ]
    worst = min(rows, key=lambda row: -1.0 if row["rate"] is None else row["rate"])
    name = ", ".join(dict.fromkeys([worst["base"], worst["change"]]))
    reached = f"lowest {rate(worst['rate'])} (p {p_value(worst['p'])}: {name})"
    if len(rows) > 1:
        reached += f"; {len(rows) - len(failed)} of {len(rows)} reach it"
    return Target(what, wanted, reached, not failed)


# --- the rest ----------------------------------------------------------------------------------


def validity_targets(part: Document | None) -> list[Target]:
    """Return what is wanted of p-values of keys that nobody embedded."""
    shares, counts = "p-values of random keys", "counts of each half"
    wanted_shares = "share with p ≤ α at most α + sampling error"
    wanted_counts = f"binomial: smallest χ² p × tests ≥ {LEAST_CHI_SQUARE}"
    if part is None:
        return [Target.unknown(shares, wanted_shares), Target.unknown(counts, wanted_counts)]
    beyond, single = part["beyond_joint_allowance"], part["beyond_single_allowance"]
    smallest, tests = part["smallest_chi_square_p"], part["chi_square_tests"]
    return [
        Target(
            shares,
            wanted_shares,
            f"{beyond} of {part['checks']} shares beyond the joint 99 % allowance "
            f"({single} beyond the single one; {0.01 * part['checks']:.1f} expected at most)",
            beyond == 0,
        ),
        Target(
            counts,
            wanted_counts,
            f"smallest p {p_value(smallest)} of {tests} tests",
            smallest is not None and smallest * tests >= LEAST_CHI_SQUARE,
        ),
    ]


def fidelity_targets(part: Document | None) -> list[Target]:
    """Return what is wanted of clean outputs."""
    found = None if part is None else part["fidelity"]
    lines = []
    for what, least, value in (
        ("cosine of clean outputs", 0.997, found and found["clean"]["mean"]),
        ("correlation of clean similarities", 0.999, found and found["similarity_correlation"]),
    ):
        wanted = f"≥ {least}"
        if value is None:
            lines.append(Target.unknown(what, wanted))
        else:
            lines.append(Target(what, wanted, f"{value:.5f}", value >= least))
    return lines


def accuracy_target(tasks: dict[str, float] | None) -> Target:
    """Return what is wanted of accuracies, which ``fidelity.py`` measures."""
    what, wanted = "accuracy after fine-tuning", "within 0.5 points on each of 5 tasks"
    if not tasks:
        return Target.unknown(what, wanted, "measured by `benchmarks/fidelity.py`")
    worst = max(tasks, key=lambda name: abs(tasks[name]))
    reached = f"largest mean difference {tasks[worst]:+.2f} points ({worst}; {len(tasks)} tasks)"
    return Target(what, wanted, reached, abs(tasks[worst]) <= 0.5 and len(tasks) >= 5)


def kind_targets(part: Document | None) -> list[Target]:
    """Return what is wanted of models trained from scratch."""
    lines = []
    for name, what, where in (
        ("bert", "encoder trained from scratch", "outputs"),
        ("gpt2", "decoder, by log-probabilities alone", "log-probabilities of 64 tokens"),
    ):
        rows = [
            {**row, "base": where}
            for row in ([] if part is None else part["kinds"].get(name, {}).get("rows", []))
            if row["model"] == "marked" and row["read"] == where and row["change"] == PLAIN
        ]
        lines.append(rate_target(what, rows, _STRONG, MOST_P))
    return lines


def rate(value: float | None) -> str:
    """Return a rate, a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def p_value(value: float | None) -> str:
    """Return a p-value, a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
