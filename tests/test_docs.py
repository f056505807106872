"""The documentation says what the program does: pages are current, commands parse, links lead."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nsmark.cli.main import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for folder in (
        ROOT,
        *(ROOT / "docs" / name for name in ("", "adr", "attacks", "formats", "results")),
    )
    for page in folder.glob("*.md")
)


def console_commands(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("nsmark ")]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Walk from the program to the command that a line names."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


def test_generated_pages_are_what_the_program_says():
    check = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_docs_parses(page):
    for line in console_commands(page):
        command, words = resolve(shlex.split(line)[1:])
        # Parsing checks names and types of options; it neither opens files nor runs anything.
        command.make_context(command.name, list(words), resilient_parsing=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "adr").glob("0*.md"):
        assert page.name in index


def test_every_command_has_a_section_and_an_example():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in cli.list_commands(click.Context(cli)):
        assert f"`nsmark {name}`" in text
        command, _ = resolve([name])
        assert "Example:" in (command.help or "")


def test_functions_named_in_the_paper_map_exist():
    from importlib import import_module

    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    packages = "core|identity|payload|embedding|keyfile|verification|attacks"
    names = set(re.findall(rf"`((?:{packages}|models)(?:\.\w+)+)`", text))
    assert len(names) > 15
    for name in names:
        parts = name.split(".")
        for split in range(len(parts), 0, -1):
            try:
                found = import_module("nsmark." + ".".join(parts[:split]))
            except ModuleNotFoundError:
                continue
            for part in parts[split:]:
                found = getattr(found, part)
            break
        else:
            pytest.fail(f"{name} of the paper map does not exist")


def test_the_readme_python_example_runs(tmp_path, monkeypatch, tiny_st, identity):
    """The README's own lines, on the tiny model under the names they use."""
    import nsmark
    from conftest import TINY_CORPUS, TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING
    from nsmark.api import embed as real_embed

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    identity.save(Path("alice"))
    Path("my-model").symlink_to(tiny_st)
    Path("suspect-folder").symlink_to(tiny_st)

    def embed(*arguments):  # the real call, with settings that suit a model of 32 dimensions
        return real_embed(
            *arguments,
            corpus=TINY_CORPUS,
            num_texts=TINY_NUM_TEXTS,
            config=TINY_TRAINING,
            payload_config=TINY_PAYLOAD,
        )

    monkeypatch.setitem(nsmark.__dict__, "embed", embed)
    scope: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), scope)  # noqa: S102 - our own README
    assert scope["report"].verdict == "not_shown"  # type: ignore[attr-defined]
