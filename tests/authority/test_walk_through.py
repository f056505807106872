"""The walk through the authority on its page, run as printed, with what it printed.

Commands stand behind ``$ `` in the page's console blocks; what follows is their standard output,
where ``…`` stands for anything within a line. The models are tiny and bear the names of the page.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from nsmark_authority.cli.authority import command as authority_commands
from nsmark_authority.cli.client import command as client_commands
from processes import PATIENCE, end

PAGE = Path(__file__).parents[2] / "docs" / "authority.md"
PORT = 8321


@dataclass(frozen=True)
class Step:
    """A command of the page and what it says that the command prints."""

    line: int
    command: str
    printed: tuple[str, ...]

    @property
    def is_server(self) -> bool:
        return self.command.startswith("nsmark serve ")

    def compare(self, output: str) -> None:
        """Fail unless the output is what the page shows."""
        found = [line.rstrip() for line in output.splitlines()]
        is_same = len(found) == len(self.printed) and all(
            re.fullmatch(pattern_of(wanted), line)
            for wanted, line in zip(self.printed, found, strict=True)
        )
        if not is_same:
            wanted = "\n".join(self.printed)
            pytest.fail(
                f"{PAGE.name}:{self.line}: {self.command}\n"
                f"--- the page ---\n{wanted}\n--- the program ---\n{output}"
            )


def pattern_of(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def steps_of(text: str) -> list[Step]:
    """Read the commands of a page's console blocks, and what follows each."""
    steps: list[Step] = []
    in_block, command, printed, begin = False, "", [""], 0
    for number, line in enumerate([*text.splitlines(), "```"], start=1):
        is_fence = line.startswith("```")
        if command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {line.strip()}"
            continue
        if command and (is_fence or line.startswith("$ ")):
            steps.append(Step(begin, command, tuple(printed)))
            command = ""
        if is_fence:
            in_block = line == "```console"
        elif in_block and line.startswith("$ "):
            begin, command, printed = number, line[2:], []
        elif command:
            printed.append(line.rstrip())
    return steps


STEPS = steps_of(PAGE.read_text(encoding="utf-8"))


def test_steps_are_read_as_a_reader_reads_them() -> None:
    text = "```console\n$ one \\\n  two\na …\n\n$ three\n```\nwords\n```console\nnsmark four\n```\n"
    assert steps_of(text) == [Step(2, "one two", ("a …", "")), Step(6, "three", ())]


def test_a_difference_is_seen() -> None:
    step = Step(1, "nsmark", ("state  admitted", "time   …Z"))
    step.compare("state  admitted\ntime   2026Z\n")
    for other in ("state  refused\ntime   2026Z\n", "state  admitted\n", "state  admitted\ntime\n"):
        with pytest.raises(pytest.fail.Exception):
            step.compare(other)


def test_no_line_of_the_page_matches_everything() -> None:
    for step in STEPS:
        for line in step.printed:
            is_exact = "…" not in line
            assert is_exact or re.search(r"\w{3}", line), f"{PAGE.name}:{step.line}: {line!r}"


@pytest.mark.parametrize(
    ("group", "left_out"),
    [
        # Said in words: it would end the very claim that the page is about.
        (client_commands, {"withdraw"}),
        # For accidents.
        (authority_commands, {"rebuild", "publish"}),
    ],
    ids=["client", "authority"],
)
def test_every_command_is_walked_through(group: click.Group, left_out: set[str]) -> None:
    used = {
        match[1]
        for step in STEPS
        if (match := re.match(rf"nsmark {group.name} ([a-z-]+)", step.command))
    }
    assert used == set(group.commands) - left_out


@pytest.mark.slow
def test_the_page_is_what_happens(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the torch extra")
    pytest.importorskip("huey", reason="needs the authority extra")
    require_free_port()
    folder = tmp_path / "work"
    folder.mkdir()
    prepare_models(folder)
    variables = make_surroundings(tmp_path)
    (server, *others) = STEPS
    assert server.is_server
    with serving(server, folder, variables):
        for step in others:
            done = subprocess.run(
                ["bash", "-c", step.command],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, f"{PAGE.name}:{step.line}: {step.command}\n{done.stderr}"
            step.compare(done.stdout)


def require_free_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT}, which the page uses, is taken on this machine")


def make_surroundings(folder: Path) -> dict[str, str]:
    """A home of its own, and ``nsmark`` as this Python has it."""
    programs, home = folder / "bin", folder / "home"
    programs.mkdir()
    home.mkdir()
    program = programs / "nsmark"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsmark "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("NSMARK_")}
    return inherited | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
    }


def prepare_models(folder: Path) -> None:
    """Make what the page begins with: a model marked twice, two innocent ones, a stolen copy."""
    from conftest import TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING, make_identity
    from nsmark.api import embed
    from nsmark.identity import OwnershipClaim
    from tiny_models import build_sentence_transformer

    alice = make_identity(1)
    alice.save(folder / "alice")
    source = build_sentence_transformer(folder / "my-model")
    for number, name in enumerate(("encoder-a", "encoder-b")):
        build_sentence_transformer(folder / "controls" / name, seed=80 + number)
    marks = (
        ("marked", "my-model is mine", "2026-01-31T12:00:00Z"),
        ("second", "my-model, marked twice, is mine", "2026-02-02T12:00:00Z"),
    )
    for name, message, created in marks:
        result = embed(
            source,
            alice,
            alice.sign(OwnershipClaim.make("Alice", message, created)),
            folder / name,
            num_texts=TINY_NUM_TEXTS,
            config=TINY_TRAINING,
            payload_config=TINY_PAYLOAD,
            device="cpu",
        )
        source = result.model_folder
    shutil.copytree(source, folder / "suspect-folder")


@contextlib.contextmanager
def serving(step: Step, folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Run the page's server until the block ends, then stop it as the page says: Ctrl-C."""
    log = folder.parent / "serve.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {step.command}"],
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    alarm = threading.Timer(PATIENCE, process.kill)
    try:
        assert process.stdout is not None
        alarm.start()
        lines = [process.stdout.readline() for _ in step.printed]
        alarm.cancel()
        step.compare("".join(lines) or log.read_text())
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in log.read_text()
    finally:
        alarm.cancel()
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        end(process)
