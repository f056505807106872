"""``fine-tuning[steps=50] + whitening + noise[share=0.1]``: attacks one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from nsmark.attacks.catalogue import Attack, Recipe, find_attack
from nsmark.attacks.settings import parse_settings
from nsmark.errors import UsageError

_MAX_LENGTH = 2000
_PART = re.compile(r"(?P<name>[a-z0-9-]+)(?:\[(?P<settings>[^\[\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Step:
    """One attack with its settings."""

    attack: Attack
    recipe: Recipe
    settings: Any

    def __str__(self) -> str:
        """As it is written; usual settings are left out."""
        usual = {each.name: each.default for each in fields(self.recipe.settings)}
        changed = [f"{k}={v}" for k, v in asdict(self.settings).items() if usual[k] != v]
        return self.attack.name + (f"[{','.join(changed)}]" if changed else "")


def parse_attack(expression: str, settings: Mapping[str, str] | None = None) -> list[Step]:
    """Read what is to be done, in order.

    Args:
        expression: Names of attacks, joined by ``+``, each with its settings in brackets.
        settings: Further settings, if there is one attack only.

    Raises:
        UsageError: It is not written so, an attack is not known, or a setting.
        ConfigError: A setting is out of range.
    """
    matches = [_PART.fullmatch(part.strip()) for part in expression.split("+")]
    parts = [match for match in matches if match is not None]
    if len(expression) > _MAX_LENGTH or len(parts) < len(matches):
        raise UsageError(
            f"{expression[:60]!r} names no attack",
            "write name, name[setting=value,…], or several of them joined by +",
        )
    if settings and len(parts) > 1:
        raise UsageError(
            "--set does not say which of several attacks is meant",
            "write settings in brackets: pruning[share=0.3] + whitening",
        )
    steps = []
    for match in parts:
        values = _read_settings(match["settings"] or "") | dict(settings or {})
        attack = find_attack(match["name"])
        recipe = attack.recipe()
        steps.append(Step(attack, recipe, parse_settings(recipe.settings, values)))
    return steps


def _read_settings(text: str) -> dict[str, str]:
    values = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"setting {pair[:40]!r} has no '='", "write name=value")
        values[name.strip()] = value.strip()
    return values


def written(steps: list[Step]) -> str:
    """Return steps as they are written."""
    return " + ".join(map(str, steps))
