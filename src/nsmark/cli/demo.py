"""``nsmark demo``."""

from __future__ import annotations

import contextlib
import io
import itertools
from pathlib import Path

import click

from nsmark.cli.output import echo_json, json_option


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="New folder for everything that is made; default: demo-output, or the next free name.",
)
@click.option("--max-steps", type=click.IntRange(1), help="Budget of the embedding.")
@json_option
def command(out: Path | None, max_steps: int | None, as_json: bool) -> None:
    """Show all of it on a real model (all-MiniLM-L6-v2), in minutes.

    \b
    Example:
      nsmark demo --out demo-output
    """
    try:
        from nsmark.demo.run import run_demo, summary
    except ModuleNotFoundError as error:
        from nsmark.errors import MissingExtraError

        raise MissingExtraError(str(error.name), "demo") from error
    out = out or _free_folder()
    demo = run_demo(out, _run_command, lambda line: click.echo(line, err=True), max_steps)
    if as_json:
        echo_json(
            {
                "out": str(out),
                "commands": demo.commands,
                "verifications": demo.rows,
                "task": demo.task,
                "fidelity": demo.fidelity,
                "seconds": round(demo.seconds, 1),
                "peak_memory_gib": round(demo.peak_memory_gib, 2),
            }
        )
    else:
        click.echo(summary(demo, out))


def _free_folder() -> Path:
    """Return the first name no earlier demonstration has taken: its results are kept."""
    names = (Path("demo-output" + (f"-{i}" if i > 1 else "")) for i in itertools.count(1))
    return next(name for name in names if not name.exists())


def _run_command(arguments: list[str]) -> tuple[int, str]:
    """Run a command line in this process; what people read goes on to standard error."""
    from nsmark.cli.main import main

    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        status = main(arguments)
    output = captured.getvalue()
    if "--json" not in arguments:
        click.echo(output, nl=False, err=True)
    return status, output
