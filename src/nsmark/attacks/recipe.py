"""What an attack is: a named recipe with its settings, its source and its price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

Kind = Literal["outputs", "texts", "weights", "training", "surrogate"]
"""What is attacked: answers on their way out, queries on their way in, weights as they are,
weights by further training; or nothing, but another model learns from the answers."""

Facts = dict[str, Any]
"""What an attack did, in words and numbers that JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One attack."""

    name: str
    summary: str
    """In a line."""
    kind: Kind
    source: str
    """Who described it; ``ours`` where nobody did."""
    deviations: str
    """From there, and why."""
    cost: str
    """To the thief."""
    keeps: str
    """Of the model's use."""
    settings: type[Any]
    """A frozen dataclass with a docstring under every field; it refuses what is out of range."""
    apply: Callable[[Stolen, Any, Material], Facts]
    """Change the stolen model in place and tell what was done."""
    trials: Sequence[str] = ()
    """Settings that the suite runs, each as in ``share=0.4,seed=1``; by default the usual ones."""
    reference_trials: Sequence[str] = ()
    """Further ones, where the thief has the unmarked model, too."""
