"""What commands share: JSON on standard output, progress and passphrases on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from nsmark.errors import UsageError
from nsmark.files import read_bounded

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")
device_option = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 …"
)


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


class PlainProgress:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, interval_seconds: float = 10.0) -> None:
        self._interval = interval_seconds
        self._last = 0.0
        self._first: tuple[int, float] | None = None

    def update(self, done: int, total: int, text: str) -> None:
        """Say how far it is, unless something was said a moment ago."""
        now = time.monotonic()
        if self._first is None or done < self._first[0]:
            # What came before the first piece was loading; a smaller number is a new task.
            self._first = (done, now)
        if done < total and now - self._last < self._interval:
            return
        self._last = now
        first, start = self._first
        left = ""
        if done > first:
            left = f"  about {(now - start) / (done - first) * (total - done):.0f} s left"
        click.echo(f"{done}/{total}  {text}{left}", err=True)


@contextlib.contextmanager
def progress_bar(description: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield ``update(done, total, text)``: a live bar on a terminal, plain lines elsewhere."""
    if quiet:
        yield lambda done, total, text: None
        return
    if not sys.stderr.isatty():
        yield PlainProgress().update
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (  # in all under 80 characters with the texts of our commands
        TextColumn("{task.description}"),
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(bar_width=10),
        TimeRemainingColumn(),
        TextColumn("left  {task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None, text="")

        def update(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, text=text)

        yield update
