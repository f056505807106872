"""What figures were measured with: the commit, and the versions of presets and rule.

Every JSON file of ``results/`` holds it under ``measured``; every page of ``docs/results/`` says it
in its first lines, and whether it is older than what the program does today.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nsmark.embedding.config import PRESET_VERSIONS
from nsmark.verification.verdict import RULE_VERSION

Measured = dict[str, Any]

ROOT = Path(__file__).parents[1]
COMMIT = "NSMARK_COMMIT"
"""Variable that names the commit where the measuring machine has no repository."""


def measured(
    presets: Iterable[str] | None = (), *, rule: bool = False, device: str = "cpu"
) -> Measured:
    """Return what is measured with now.

    Args:
        presets: Those that marked the models; None where that is not known.
        rule: Whether the rule ``calibrated`` judged.
        device: What it runs on, as the scripts are told.
    """
    return {
        "commit": os.environ.get(COMMIT) or commit(),
        "device": device_in_words(device),
        "presets": None if presets is None else {name: PRESET_VERSIONS[name] for name in presets},
        "rule": RULE_VERSION if rule else None,
    }


def device_in_words(device: str) -> str:
    """Return the name of a device that is named as the scripts are told."""
    if device != "cpu":
        import torch

        from nsmark.models.loading import resolve_device

        found = resolve_device(device)
        if found.type == "cuda":
            return torch.cuda.get_device_name(found)
    return f"{platform.machine()}, {os.cpu_count()} cores"


def commit() -> str:
    """Return the commit that is checked out, with a plus sign if its code was changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "benchmarks")
        return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"unknown: set {COMMIT}"


def when_measured(found: Mapping[str, Any] | None) -> str:
    """Return the sentences with which a page begins.

    Args:
        found: What :func:`measured` returned then. A ``note`` there says what differs today.
    """
    if found is None:
        return "It is not known at which commit this was measured."
    told = f"Measured at {found['commit']}"
    if found["presets"] is None:
        told += " with a preset that is not known"
    used = _versions(found)
    if used:
        told += f" with {_listed(f'{name} version {version}' for name, version in used.items())}"
        told += "" if found["rule"] else "; no rule judged it"
    elif found["presets"] is not None:
        told += "; neither a preset nor a rule matters here"
    today = {f"preset `{name}`": version for name, version in PRESET_VERSIONS.items()}
    today["rule `calibrated`"] = RULE_VERSION
    changed = [name for name, version in used.items() if version != today[name]]
    sentences = [told]
    if changed:
        have = "has" if len(changed) == 1 else "have"
        sentences.append(f"Since then {_listed(changed)} {have} changed ([versions](README.md))")
    return ". ".join(sentences) + "." + (f" {found['note']}" if "note" in found else "")


def _versions(found: Mapping[str, Any]) -> dict[str, int]:
    """Return the versions that were used, by what they are of."""
    used = {f"preset `{name}`": version for name, version in (found["presets"] or {}).items()}
    return used | ({} if found["rule"] is None else {"rule `calibrated`": found["rule"]})


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
