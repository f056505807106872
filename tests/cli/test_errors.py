from __future__ import annotations

import json
import os
import shlex
import signal
from typing import Any

import click
import pytest

import nsmark
from nsmark.cli import doctor
from nsmark.cli.main import cli, main
from nsmark.errors import NsmarkError


def all_commands() -> dict[str, click.Command]:
    """Every command and sub-command, by the words that call it."""
    context = click.Context(cli)
    found: dict[str, click.Command] = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": command.commands[sub] for sub in command.commands}
    return found


ALL_COMMANDS = all_commands()


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", *ALL_COMMANDS])
def test_help_shows_an_example_that_parses(words, capsys):
    assert main([*words.split(), "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    _, found, example = captured.out.partition("Example:")
    assert found
    lines = [line.strip() for line in example.splitlines() if line.strip().startswith("nsmark ")]
    assert lines
    assert all(line.startswith(f"nsmark {words}") for line in lines)
    for line in lines:
        parts = shlex.split(line)[1:]
        size = 2 if " ".join(parts[:2]) in ALL_COMMANDS else 1
        command = ALL_COMMANDS[" ".join(parts[:size])]
        # Raises on a wrong option. With a parent, because a command remembers its help options.
        command.make_context(command.name, parts[size:], parent=click.Context(cli))


@pytest.mark.parametrize("words", ALL_COMMANDS)
def test_every_option_says_what_it_is(words):
    for parameter in ALL_COMMANDS[words].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{words} {parameter.opts}"


@pytest.mark.parametrize("words", ALL_COMMANDS)
def test_every_command_that_does_something_can_answer_in_json(words):
    command = ALL_COMMANDS[words]
    if not isinstance(command, click.Group):
        assert "--json" in [option for p in command.params for option in p.opts]


def test_the_program_lists_its_commands(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in cli.list_commands(click.Context(cli)))
    assert main(["--version"]) == 0
    assert nsmark.__version__ in capsys.readouterr().out


# --- wrong usage ---------------------------------------------------------------------------------


def two_lines(capsys) -> tuple[str, str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    error, hint = filter(None, captured.err.splitlines())  # click ends a line on Ctrl-C
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert len(hint) > len("hint: ")
    return error, hint


@pytest.mark.parametrize(
    "words",
    [
        ["identity"],
        ["attack"],
        ["frobnicate"],
        ["identity", "frobnicate"],
        ["--frobnicate"],
        ["doctor", "--frobnicate"],
        ["doctor", "superfluous"],
        ["verify"],
        ["verify", "key"],
        ["verify", "key", "suspect", "--rule", "gut-feeling"],
        ["embed", "model"],
        ["inspect", "."],
        ["attack", "run", "ll-lfea", "."],
        ["demo", "--max-steps", "0"],
    ],
)
def test_wrong_usage_is_two_lines_and_two(words, capsys):
    assert main(words) == 2
    two_lines(capsys)


# --- bad input -----------------------------------------------------------------------------------

BAD_INPUT = [
    ["verify", "{missing}", "{model}"],
    ["verify", "{garbage}", "{model}"],
    ["verify", "{key}", "{missing}"],
    ["verify", "{key}", "st:{missing}"],
    ["verify", "{key}", "hf:{missing}"],
    ["verify", "{key}", "recorded:{missing}"],
    ["verify", "{key}", "recorded:{garbage}"],
    ["verify", "{key}", "{folder}"],
    ["verify", "{key}", "{model}", "--controls", "{missing}"],
    ["verify", "{key}", "{model}", "--pool", "{garbage}"],
    ["verify", "{key}", "{model}", "--word-list", "{missing}"],
    ["inspect", "{missing}"],
    ["inspect", "{garbage}"],
    ["identity", "show", "{missing}"],
    ["identity", "check", "{garbage}"],
    ["embed", "{model}", "--identity", "{missing}", "--out", "{new}"],
    ["embed", "{model}", "--identity", "{garbage}", "--out", "{new}"],
    ["attack", "run", "ll-lfea", "{missing}", "--out", "{new}"],
    ["attack", "run", "ll-lfea", "{folder}", "--out", "{new}"],
]


@pytest.fixture
def places(tiny_marked, tmp_path) -> dict[str, Any]:
    (tmp_path / "garbage").write_bytes(b"\xff\x00garbage")
    (tmp_path / "folder").mkdir()
    return {
        "missing": tmp_path / "missing",
        "garbage": tmp_path / "garbage",
        "folder": tmp_path / "folder",
        "new": tmp_path / "new",
        "key": tiny_marked.key_file,
        "model": tiny_marked.model_folder,
    }


@pytest.mark.parametrize("words", BAD_INPUT, ids=" ".join)
def test_bad_input_is_two_lines_and_three(words, places, capsys):
    arguments = [word.format(**places) for word in words]
    assert main(arguments) == 3
    captured = capsys.readouterr()
    error, hint = captured.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    # A verification that got as far as the answers has a page to show; nothing else has.
    assert captured.out.startswith("COULD NOT MEASURE") or captured.out == ""
    assert "internal error" not in error
    assert not places["new"].exists()


@pytest.mark.parametrize("words", BAD_INPUT, ids=" ".join)
def test_bad_input_is_one_document_with_json(words, places, capsys):
    arguments = [word.format(**places) for word in words]
    assert main([*arguments, "--json"]) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["exit_code"] == 3
    assert captured.err.splitlines()[0] == f"error: {document['error']}"
    assert document["hint"]
    if words[0] == "verify":
        assert document["verdict"] == "could_not_measure"
        assert document["reasons"][0] == document["error"]
        for name in ("extraction_rate", "thresholds", "untriggered", "key_id", "num_texts"):
            assert name in document  # null where a value cannot be had


# --- the last line of defence --------------------------------------------------------------------


def break_doctor(monkeypatch, error: BaseException) -> None:
    def raise_it() -> None:
        raise error

    monkeypatch.setattr(doctor, "examine", raise_it)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("two\nlines"), 3),
        (ZeroDivisionError(), 3),
        (MemoryError(), 3),
        (KeyboardInterrupt(), 130),
        (NsmarkError("one\nmessage\x1b[2J in two lines"), 3),
    ],
)
def test_whatever_happens_a_user_sees_two_lines(monkeypatch, capsys, error, status):
    break_doctor(monkeypatch, error)
    monkeypatch.delenv("NSMARK_DEBUG", raising=False)
    assert main(["doctor"]) == status
    message, _ = two_lines(capsys)
    assert "\x1b" not in message
    assert main(["doctor", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["exit_code"] == status


def test_a_developer_can_ask_for_the_traceback(monkeypatch):
    break_doctor(monkeypatch, RuntimeError("found it"))
    monkeypatch.setenv("NSMARK_DEBUG", "1")
    with pytest.raises(RuntimeError, match="found it"):
        main(["doctor"])


def test_being_terminated_is_being_interrupted(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["doctor"]) == 130
    two_lines(capsys)


def test_the_signal_handler_is_given_back():
    before = signal.getsignal(signal.SIGTERM)
    main(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before
