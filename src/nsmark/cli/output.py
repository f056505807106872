"""What commands share: JSON on standard output, progress and passphrases on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nsmark.cli.progress import progress_bar as progress_bar
from nsmark.errors import UsageError
from nsmark.files import read_bounded

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")
device_option = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 …"
)


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings; those without one come last."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        rows = {p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx))}
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([rows.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl(list(rows.values()))


def echo_json(document: Any) -> None:
    """Print one JSON document on standard output, in ASCII: every pipe and file name survives."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def echo_error(message: str, hint: str) -> None:
    """Print the two lines of an error on standard error."""
    click.echo(f"error: {one_line(message)}", err=True)
    click.echo(f"hint: {one_line(hint) or 'see the documentation'}", err=True)


def one_line(text: str) -> str:
    """Join lines, and spell out control characters: what a file says must not move the cursor."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in joined)


def identity_passphrase_option(function: F) -> F:
    """Add the option that unlocks an encrypted identity."""
    return click.option(
        "--passphrase-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with the identity's passphrase (else NSMARK_PASSPHRASE, else a prompt).",
    )(function)


def key_passphrase_option(function: F) -> F:
    """Add the option that unlocks an encrypted key file."""
    return click.option(
        "--key-passphrase-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with the key file's passphrase (else NSMARK_KEY_PASSPHRASE, else a prompt).",
    )(function)


def find_passphrase(file: Path | None, variable: str, what: str, *, confirm: bool = False) -> bytes:
    """Return a passphrase from a file, an environment variable or a prompt, in this order."""
    if file is not None:
        passphrase = read_bounded(file, 4096, "passphrase file").rstrip(b"\r\n")
    elif os.environ.get(variable):
        passphrase = os.environ[variable].encode("utf-8")
    elif sys.stdin.isatty():
        text = click.prompt(
            f"Passphrase of the {what}", hide_input=True, err=True, confirmation_prompt=confirm
        )
        passphrase = str(text).encode("utf-8")
    else:
        raise UsageError(f"the {what} needs a passphrase", f"give a file, or set {variable}")
    if not passphrase:
        raise UsageError("the passphrase is empty", "give at least one character")
    return passphrase
