"""Running attacks in tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsmark.attacks.expression import parse_attack
from nsmark.attacks.material import Material, gather_material
from nsmark.attacks.running import run_attack


def small_material(**changes: Any) -> Material:
    """Return a few texts and a small task, on the CPU."""
    found = gather_material(device="cpu", max_task_texts=240)
    values = {"texts": found.texts[:400], "task": found.task, "device": "cpu"} | changes
    return Material(**values)


def attack(
    model: Path,
    out: Path,
    expression: str,
    settings: Mapping[str, str] | None = None,
    *,
    material: Material | None = None,
    pooling: str | None = None,
) -> dict[str, Any]:
    """Attack a folder and return what was done in the last step, with the whole under ``all``."""
    steps = parse_attack(expression, settings)
    done = run_attack(model, steps, out, material or small_material(), pooling=pooling)
    return done["steps"][-1] | {"all": done}
