"""The attacks by name; a module is loaded only when its attack is looked at or runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from nsmark.attacks.recipe import Recipe
from nsmark.errors import UsageError


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: its name, and what it does, in a line."""

    name: str
    summary: str

    @property
    def module(self) -> str:
        """Where its recipe is."""
        return f"nsmark.attacks.recipes.{self.name.replace('-', '_')}"

    def recipe(self) -> Recipe:
        """Load all of it."""
        found: Recipe = import_module(self.module).RECIPE
        return found


ATTACKS = (
    # On answers.
    Attack("ll-lfea", "linear map of the outputs, undone in the downstream head"),
    Attack("affine", "linear map and an offset"),
    Attack("whitening", "all directions of the outputs get the same variance"),
    Attack("near-singular", "linear map that nearly loses some directions"),
    Attack("text-scaling", "every answer times its own number, of either sign"),
    Attack("unit-length", "every answer scaled to length 1"),
    Attack("dimension-cut", "only some directions of the outputs are sent"),
    Attack("dimension-expansion", "outputs hidden in more dimensions"),
    Attack("output-noise", "noise on every answer"),
    Attack("rounding", "answers rounded to a few levels, such as int8"),
    Attack("half-precision", "answers rounded to bfloat16"),
    Attack("signs", "one bit per dimension"),
    # On weights.
    Attack("pruning", "the smallest weights set to zero"),
    Attack("weight-noise", "noise on every weight"),
    Attack("quantisation", "weights rounded to a few bits"),
    Attack("layer-dropping", "the last layers left out"),
    Attack("reinitialisation", "the last layers drawn anew"),
    Attack("pooling-change", "tokens summed up in another way"),
    # By training.
    Attack("fine-tuning", "all weights trained further on a task"),
    Attack("lora-fine-tuning", "low-rank adapters trained on a task and merged"),
    Attack("fine-pruning", "units that clean texts do not use pruned, then trained further"),
    Attack("overwriting", "another owner's mark put on top"),
    Attack("distillation", "an unmarked model learns the answers"),
    Attack("paraphrasing", "an unmarked model learns answers averaged over paraphrases"),
    # On queries.
    Attack("rare-word-filter", "rare words taken out of every query"),
    Attack("repeated-word-filter", "repetitions taken out of every query"),
    Attack("surprising-word-filter", "improbable words taken out of every query (ONION)"),
    # On embeddings as a service.
    Attack("cluster-elimination", "directions that odd answers share taken out (WARDEN's CSE)"),
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
