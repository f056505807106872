"""What the suite tries: every attack with its trials, and some one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.attacks.catalogue import ATTACKS, Attack, find_attack
from nsmark.attacks.expression import parse_attack, written

COMBINATIONS = (
    "fine-tuning + ll-lfea",
    "ll-lfea + fine-tuning",
    "ll-lfea[times=3] + fine-tuning",
    "fine-tuning + whitening",
    "fine-tuning + whitening + output-noise[share=0.1]",
    "fine-tuning + pruning[share=0.3] + ll-lfea + text-scaling",
    "pruning[share=0.4] + whitening + unit-length",
    "output-noise[share=0.1] + ll-lfea",
    "output-noise[share=0.1,how=isotropic] + ll-lfea",
    "overwriting + fine-tuning",
    "overwriting + ll-lfea + text-scaling",
    "quantisation + dimension-cut + rounding",
)
"""What a thief would do who knows how the evidence is measured."""

UNTOUCHED = "none"
"""The stolen model as it is."""


def suite_plan(only: Sequence[str] = (), *, with_reference: bool = False) -> list[str]:
    """Return all trials as they are written, the untouched model first.

    Args:
        only: Names of attacks; trials without any of them are left out.
        with_reference: Whether the thief has the unmarked model, too, which some attacks use.

    Raises:
        UsageError: One of them is not known.
    """
    for name in only:
        find_attack(name)
    singles = [
        written(parse_attack(f"{attack.name}[{trial}]"))
        for attack in ATTACKS
        for trial in _trials(attack, with_reference)
    ]
    trials = [*singles, *(written(parse_attack(each)) for each in COMBINATIONS)]
    kept = [each for each in trials if not only or any(name in names_in(each) for name in only)]
    return [UNTOUCHED, *dict.fromkeys(kept)]


def _trials(attack: Attack, with_reference: bool) -> Sequence[str]:
    recipe = attack.recipe()
    return [*recipe.trials, *(recipe.reference_trials if with_reference else ())]


def effort(expression: str) -> int:
    """Return how many of the attacks in an expression train a model."""
    if expression == UNTOUCHED:
        return 0
    kinds = [find_attack(name).kind for name in names_in(expression)]
    return sum(kind in ("training", "surrogate") for kind in kinds)


def names_in(expression: str) -> list[str]:
    """Return the names of the attacks in an expression."""
    return [part.partition("[")[0].strip() for part in expression.split("+")]
