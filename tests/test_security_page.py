"""SECURITY.md names tests for what it promises: they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+\.py)::(\w+)`", PAGE)))
_HEAD = ["| threat | what stops it | tests |", "|---|---|---|"]


def threats() -> list[list[str]]:
    """Return the rows of the table of threats, cell by cell."""
    lines = PAGE.splitlines()
    begin = lines.index(_HEAD[0])
    assert lines[begin : begin + 2] == _HEAD
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("| "):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name.startswith("test_")
    assert name in functions, f"SECURITY.md names {file}::{name}"


def test_every_threat_has_an_answer_and_a_test() -> None:
    found = [row for row in threats() if not row[0].startswith("**")]
    assert len(found) > 30
    for threat, answer, tests in found:
        assert threat
        assert answer
        assert "::test_" in tests, threat


def test_whatever_looks_like_a_test_is_looked_up() -> None:
    assert len(re.findall(r"::test_", PAGE)) == len(re.findall(r"`tests/[\w/.]+\.py::\w+`", PAGE))
