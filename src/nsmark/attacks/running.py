"""Running attacks on a model folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nsmark.attacks.expression import Step, written
from nsmark.attacks.material import Material, StepCallback
from nsmark.attacks.stolen import Stolen
from nsmark.attacks.utility import Rows, Utility, Yield
from nsmark.files import ensure_new_folder, new_folder, write_json
from nsmark.suspects.base import open_suspect
from nsmark.suspects.recorded import RecordedOutputs

_ASKED_AT_ONCE = 256


def utility_of(
    model: Path,
    attacked: Path,
    material: Material,
    *,
    pooling: str | None = None,
    on_asked: StepCallback | None = None,
) -> Utility:
    """Ask a model and what became of it the task's texts, each as it is served.

    Args:
        model: What was stolen.
        attacked: What became of it.
        material: Has the task.
        pooling: How a bare transformer folder is read.
        on_asked: Told how many texts were asked, of how many, both models counted.
    """
    task, told = material.task, 0
    total = 2 * (len(task.train_texts) + len(task.test_texts))

    def asked(folder: Path) -> Yield:
        suspect = open_suspect(str(folder), pooling=pooling, device=material.device)
        assert not isinstance(suspect, RecordedOutputs)  # noqa: S101 - it is a folder

        def answering(texts: Sequence[str]) -> Rows:
            nonlocal told
            parts = []
            for start in range(0, len(texts), _ASKED_AT_ONCE):
                part = texts[start : start + _ASKED_AT_ONCE]
                parts.append(suspect.outputs(part).astype(np.float64))
                told += len(part)
                if on_asked is not None:
                    on_asked(told, total)
            return np.vstack(parts)

        return Yield.of(answering, task)

    return asked(model).after(asked(attacked))


def run_attack(
    model: Path,
    steps: Sequence[Step],
    out: Path,
    material: Material,
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    max_length: int = 128,
) -> dict[str, Any]:
    """Attack a model folder and write the attacked one.

    Args:
        model: What was stolen.
        steps: What is done to it, in order.
        out: A new folder, with ``attack.json`` in it that tells what was done.
        material: What the thief has at hand.
        pooling: How a bare transformer folder is read.
        normalise: Whether its outputs are of unit length.
        max_length: Tokens of a text.

    Returns:
        What ``attack.json`` holds.
    """
    started = time.perf_counter()
    ensure_new_folder(out)  # before hours of training
    stolen = Stolen.open(
        model,
        pooling=pooling,
        normalise=normalise,
        max_length=max_length,
        device=material.device,
    )
    done = []
    for step in steps:
        begun = time.perf_counter()
        facts = step.recipe.apply(stolen, step.settings, material)
        done.append(
            {
                "attack": step.attack.name,
                "settings": asdict(step.settings),
                **facts,
                "seconds": round(time.perf_counter() - begun, 3),
            }
        )
    document = {
        "attack": written(list(steps)),
        "steps": done,
        "seconds": round(time.perf_counter() - started, 3),
    }
    with new_folder(out) as staging:
        stolen.save(staging)
        write_json(staging / "attack.json", document)
    return document
