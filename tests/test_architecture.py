"""The page that shows how nsmark is built says what is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "nsmark"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_rooms_are_those_that_imports_are_held_to():
    told = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        c["layers"] for c in contracts["contracts"] if "nsmark.cli" in c.get("layers", ())
    )
    assert [f"nsmark.{room}" for room in told] == layers
    there = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith(("_", "py."))}
    assert set(told) == there


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w/]+\.py:\w+)`", PAGE))))
def test_every_place_that_is_named_exists(place):
    file, _, name = place.partition(":")
    body = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assigned = {
        target.id
        for node in body
        for target in getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(target, ast.Name)
    }
    assert name in defined | assigned
