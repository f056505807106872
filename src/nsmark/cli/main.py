"""The entry point: finds the command, and turns errors into two lines and an exit status.

Commands are loaded when they run, so that ``nsmark --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Any

import click

from nsmark import __version__
from nsmark.errors import NsmarkError

COMMANDS = {
    "identity": "Make and show signing keys; sign and check claims.",
    "embed": "Watermark a model and write its key.",
    "inspect": "Show what a key holds, without its secrets.",
    "verify": "Test whether a suspect carries a key's watermark.",
    "identify": "Find which of many keys' marks a suspect carries.",
    "calibrate": "Measure innocent models under a key and draw its lines.",
    "attack": "Attack a model, to test a mark before a thief does.",
    "demo": "Show all of it on a real model, in minutes.",
    "doctor": "Say what is installed, what is missing and how to get it.",
}

EXAMPLE = """
\b
Example:
  nsmark identity new --out alice
  nsmark embed MODEL --identity alice.pem --owner "Alice" --message "mine" --out marked
  nsmark verify marked/owner.nsmark SUSPECT
"""


def other_commands() -> dict[str, tuple[str, str]]:
    """Return the commands that other packages bring: where each one's module is, what it does."""
    from importlib.metadata import entry_points

    return {
        name: (package.value, summary)
        for package in entry_points(group="nsmark.commands")
        for name, summary in package.load().COMMANDS.items()
        if name not in COMMANDS
    }


class LazyGroup(click.Group):
    """A group whose commands live in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are used, then those of other packages."""
        return [*COMMANDS, *other_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        package = "nsmark.cli"
        if cmd_name not in COMMANDS:
            others = other_commands()
            if cmd_name not in others:
                return None
            package, _ = others[cmd_name]
        command: click.Command = import_module(f"{package}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        others = [(name, summary) for name, (_, summary) in other_commands().items()]
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *others])


@click.group(
    cls=LazyGroup,
    epilog=EXAMPLE,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="nsmark")
def cli() -> None:
    """Prove that a language model behind an API is yours."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0 done or owned, 1 not shown, 2 wrong usage, 3 could not measure or bad input,
    130 interrupted.
    """
    arguments = _with_help(list(sys.argv[1:] if argv is None else argv))
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(arguments)
    except (BrokenPipeError, SystemExit):
        # The reader went away (`nsmark … | head`): nothing to say and nobody to say it to. Click
        # turns that into SystemExit(1), but 1 would mean "not shown".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    finally:
        signal.signal(signal.SIGTERM, previous)


def _with_help(arguments: list[str]) -> list[str]:
    """Return what is meant by nothing, and by ``help`` before a command's name."""
    if arguments[:1] == ["help"]:
        return [*arguments[1:], "--help"]
    return arguments or ["--help"]


def _run(arguments: list[str]) -> int:
    try:
        return int(cli.main(arguments, prog_name="nsmark", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _report(arguments, error.format_message(), _usage_hint(error), 2)
    except NsmarkError as error:
        return _report(arguments, str(error), error.hint, error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _report(arguments, "interrupted", "nothing unfinished was left behind", 130)
    except BrokenPipeError:
        raise
    except MemoryError:
        return _report(arguments, "out of memory", "use fewer texts or a machine with more", 3)
    except Exception as error:  # the last line of defence: a user never sees a traceback
        if os.environ.get("NSMARK_DEBUG"):
            raise
        first = (str(error).splitlines() or [""])[0][:200]
        return _report(
            arguments,
            f"internal error: {type(error).__name__}: {first}",
            "this is a bug in nsmark; run again with NSMARK_DEBUG=1 and report the traceback",
            3,
        )


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path if context else 'nsmark'} --help`"


def _report(arguments: Sequence[str], message: str, hint: str, status: int) -> int:
    """Write the error to standard error, and with ``--json`` as a document to standard output."""
    from nsmark.cli.output import echo_error, echo_json, one_line

    echo_error(message, hint)
    if "--json" in arguments:
        message = one_line(message)
        document: dict[str, Any] = {"error": message, "hint": hint, "exit_code": status}
        if arguments[:1] == ["verify"]:
            from nsmark.cli.verify import unmeasured

            document |= unmeasured(message)
        echo_json(document)
    return status
