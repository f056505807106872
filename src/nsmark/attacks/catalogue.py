"""The catalogue of attacks, and what the recipe of each says.

A recipe's module is loaded only when its attack is looked at or runs: many need torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from nsmark.errors import UsageError

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
    """How one attack is done, with its source and its price."""

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
    trials: Sequence[str] = ("",)
    """Settings that the suite runs, each as in ``share=0.4,seed=1``."""
    reference_trials: Sequence[str] = ()
    """Further ones, where the thief has the unmarked model, too."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: its name, what is attacked, and what it does, in a line."""

    name: str
    kind: Kind
    summary: str

    def recipe(self) -> Recipe:
        """Load all of it."""
        module = import_module(f"nsmark.attacks.recipes.{self.name.replace('-', '_')}")
        recipe: Recipe = module.RECIPE
        return recipe


ATTACKS = (
    Attack("ll-lfea", "outputs", "linear map of the outputs, undone in the downstream head"),
    Attack("affine", "outputs", "linear map and an offset"),
    Attack("whitening", "outputs", "all directions of the outputs get the same variance"),
    Attack("near-singular", "outputs", "linear map that nearly loses some directions"),
    Attack("text-scaling", "outputs", "every answer times its own number, of either sign"),
    Attack("unit-length", "outputs", "every answer scaled to length 1"),
    Attack("dimension-cut", "outputs", "only some directions of the outputs are sent"),
    Attack("dimension-expansion", "outputs", "outputs hidden in more dimensions"),
    Attack("output-noise", "outputs", "noise on every answer"),
    Attack("rounding", "outputs", "answers rounded to a few levels, such as int8"),
    Attack("half-precision", "outputs", "answers rounded to bfloat16"),
    Attack("signs", "outputs", "one bit per dimension"),
    Attack("pruning", "weights", "the smallest weights set to zero"),
    Attack("weight-noise", "weights", "noise on every weight"),
    Attack("quantisation", "weights", "weights rounded to a few bits"),
    Attack("layer-dropping", "weights", "the last layers left out"),
    Attack("reinitialisation", "weights", "the last layers drawn anew"),
    Attack("pooling-change", "weights", "tokens summed up in another way"),
    Attack("fine-tuning", "training", "all weights trained further on a task"),
    Attack("lora-fine-tuning", "training", "low-rank adapters trained on a task and merged"),
    Attack(
        "fine-pruning",
        "training",
        "units that clean texts do not use pruned, then trained further",
    ),
    Attack("overwriting", "training", "another owner's mark put on top"),
    Attack("distillation", "surrogate", "an unmarked model learns the answers"),
    Attack(
        "paraphrasing", "surrogate", "an unmarked model learns answers averaged over paraphrases"
    ),
    Attack("rare-word-filter", "texts", "rare words taken out of every query"),
    Attack("repeated-word-filter", "texts", "repetitions taken out of every query"),
    Attack("surprising-word-filter", "texts", "improbable words taken out of every query (ONION)"),
    Attack(
        "cluster-elimination",
        "outputs",
        "directions that odd answers share taken out (WARDEN's CSE)",
    ),
)


def find_attack(name: str) -> Attack:
    """Return an attack by its name.

    Raises:
        UsageError: There is none of that name.
    """
    for attack in ATTACKS:
        if attack.name == name:
            return attack
    known = ", ".join(attack.name for attack in ATTACKS)
    raise UsageError(f"there is no attack {name[:40]!r}", f"known attacks: {known}")
