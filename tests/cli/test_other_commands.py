"""Packages beside ours bring commands by an entry point; help lists them without loading them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import PATIENCE

HELLO = """
import sys
import click

print("loaded", file=sys.stderr)

@click.command()
def command():
    click.echo("hello")
"""


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with an installed distribution that brings the command ``hello``."""
    metadata = tmp_path / "greeting-1.0.dist-info"
    package = tmp_path / "greeting" / "commands"
    metadata.mkdir()
    package.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[nsmark.commands]\ngreeting = greeting.commands\n")
    (tmp_path / "greeting" / "__init__.py").touch()
    (package / "__init__.py").write_text('COMMANDS = {"hello": "Say hello.", "verify": "Ours."}\n')
    (package / "hello.py").write_text(HELLO)
    return tmp_path


def nsmark(beside: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = f"{beside}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, "-m", "nsmark", *words],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_command_of_another_package_is_listed_and_run(beside: Path) -> None:
    listed = nsmark(beside, "--help")
    assert "  hello      Say hello.\n" in listed.stdout
    assert listed.stderr == ""
    ran = nsmark(beside, "hello")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hello\n", "loaded\n")


def test_no_other_package_takes_the_place_of_our_commands(beside: Path) -> None:
    assert "carries KEY" in nsmark(beside, "verify", "--help").stdout
    assert nsmark(beside, "--help").stdout.count("  verify ") == 1


def test_help_loads_none_of_the_authority_s_commands() -> None:
    program = (
        "import sys; from nsmark.cli.main import main; main(['--help'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('nsmark_authority')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert all(f"  {name} " in done.stdout for name in ("serve", "authority", "client"))
    assert done.stderr == "['nsmark_authority', 'nsmark_authority.cli']\n"
