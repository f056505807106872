"""The attacks by name; a module is loaded only when its attack runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from nsmark.errors import UsageError


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: where it lives and what it does, in a line."""

    name: str
    module: str
    summary: str

    def run(self, model: Path, out: Path, settings: Mapping[str, str]) -> dict[str, Any]:
        """Attack a model folder; writes ``out`` and returns what was done, as JSON."""
        result: dict[str, Any] = import_module(self.module).run(model, out, settings)
        return result


ATTACKS = (
    Attack(
        "ll-lfea",
        "nsmark.attacks.ll_lfea",
        "linear map of the outputs, undone in the downstream head",
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
