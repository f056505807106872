"""``nsmark attack``."""

from __future__ import annotations

from pathlib import Path

import click

from nsmark.attacks import ATTACKS, find_attack
from nsmark.cli.output import echo_json, json_option
from nsmark.errors import MissingExtraError, ModelError, UsageError


@click.group("attack", no_args_is_help=False)
def command() -> None:
    """Attack a model, to test a mark before a thief does.

    \b
    Example:
      nsmark attack list
      nsmark attack run ll-lfea marked/model --out stolen
    """


@command.command("list")
@json_option
def list_attacks(as_json: bool) -> None:
    """List the attacks.

    \b
    Example:
      nsmark attack list --json
    """
    if as_json:
        echo_json([{"name": attack.name, "summary": attack.summary} for attack in ATTACKS])
        return
    for attack in ATTACKS:
        click.echo(f"{attack.name:12} {attack.summary}")


@command.command("run")
@click.argument("name")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New folder.")
@click.option("--set", "pairs", multiple=True, metavar="K=V", help="A setting; may be repeated.")
@json_option
def run(name: str, model: Path, out: Path, pairs: tuple[str, ...], as_json: bool) -> None:
    """Run attack NAME on the folder MODEL and write the attacked folder.

    \b
    Example:
      nsmark attack run ll-lfea marked/model --out stolen --set kind=uniform --set seed=1
    """
    attack = find_attack(name)
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"--set {pair[:40]!r} has no '='", "write --set name=value")
        settings[key.strip()] = value
    if not model.is_dir():
        raise ModelError(f"{model} is not a folder", "give the folder of a saved model")
    try:
        result = attack.run(model, out, settings)
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    if as_json:
        echo_json({"out": str(out), **result})
        return
    click.echo(f"attacked model  {out}")
    for key, value in result.items():
        click.echo(f"{key:15} {value}")
