"""``nsmark attack``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.attacks import ATTACKS, find_attack
from nsmark.cli.inspect import load_key
from nsmark.cli.output import (
    device_option,
    echo_json,
    json_option,
    key_passphrase_option,
    one_line,
    progress_bar,
    quiet_option,
)
from nsmark.errors import MissingExtraError, ModelError, NsmarkError, UsageError
from nsmark.models.folder import POOLINGS

if TYPE_CHECKING:
    from nsmark.attacks.trial import Row

texts_option = click.option(
    "--texts",
    type=click.Path(path_type=Path),
    help="Ordinary texts that the thief has; default: the built-in corpus.",
)
task_option = click.option(
    "--task",
    type=click.Path(path_type=Path),
    help="Texts with labels (JSONL, CSV: columns text and label) that he uses the model for; "
    "default: topics of the built-in corpus.",
)


reference_option = click.option(
    "--reference",
    type=click.Path(file_okay=False, path_type=Path),
    help="The unmarked model, if it is public: some attacks use it.",
)


@click.group("attack", no_args_is_help=False)
def command() -> None:
    """Attack a model, to test a mark before a thief does.

    \b
    Example:
      nsmark attack list
      nsmark attack show ll-lfea
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
    width = max(len(attack.name) for attack in ATTACKS)
    for attack in ATTACKS:
        click.echo(f"{attack.name:{width}}  {attack.summary}")


@command.command("show")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Tell what attack NAME does, who described it, what it costs, and its settings.

    \b
    Example:
      nsmark attack show ll-lfea
    """
    attack = find_attack(name)
    recipe = _loaded(attack.recipe)
    about = {
        "name": attack.name,
        "summary": attack.summary,
        "kind": attack.kind,
        "source": recipe.source,
        "deviations": recipe.deviations,
        "cost": recipe.cost,
        "keeps": recipe.keeps,
    }
    usual = asdict(recipe.settings())
    if as_json:
        echo_json(about | {"settings": usual, "trials": list(recipe.trials)})
        return
    for key, value in about.items():
        click.echo(f"{key:11} {value}")
    click.echo("settings")
    for each in fields(recipe.settings):
        click.echo(f"  {each.name} = {usual[each.name]!r}")


@command.command("run")
@click.argument("name")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New folder.")
@click.option("--set", "pairs", multiple=True, metavar="K=V", help="A setting; may be repeated.")
@texts_option
@task_option
@reference_option
@click.option(
    "--pooling", type=click.Choice(POOLINGS), help="How a bare transformer folder is read."
)
@click.option(
    "--utility/--no-utility",
    default=True,
    show_default=True,
    help="Ask both models the task's texts, to see what the attack costs.",
)
@device_option
@quiet_option
@json_option
def run(
    name: str,
    model: Path,
    out: Path,
    pairs: tuple[str, ...],
    texts: Path | None,
    task: Path | None,
    reference: Path | None,
    pooling: str | None,
    utility: bool,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run attack NAME on the folder MODEL and write the attacked folder.

    NAME may be several attacks joined by +, each with its settings in brackets.

    \b
    Example:
      nsmark attack run ll-lfea marked/model --out stolen --set kind=uniform --set seed=1
    """
    settings = _settings(pairs)
    if not model.is_dir():
        raise ModelError(f"{model} is not a folder", "give the folder of a saved model")

    def attacked() -> dict[str, Any]:
        from nsmark.attacks.expression import parse_attack
        from nsmark.attacks.material import gather_material
        from nsmark.attacks.running import run_attack, utility_of

        steps = parse_attack(name, settings)
        with progress_bar("attacking", quiet) as update:
            update(0, 1, "model and texts are read, then attacked")
            material = gather_material(
                texts,
                task,
                device=device,
                on_step=lambda done, total: update(done, total, f"steps of {name}"),
                reference=reference,
            )
            done = run_attack(model, steps, out, material, pooling=pooling)
            left = None
            if utility:
                asked = "texts asked of both models, to see what is left"
                left = utility_of(
                    model,
                    out,
                    material,
                    pooling=pooling,
                    on_asked=lambda number, total: update(number, total, asked),
                )
            return done | {"utility": None if left is None else left.to_mapping()}

    started = time.monotonic()
    result = _loaded(attacked)
    took = time.monotonic() - started
    if as_json:
        echo_json({"out": str(out), **result})
        return
    click.echo(f"attacked model  {out}")
    for step in result["steps"]:
        for key, value in step.items():
            click.echo(f"{key:15} {_in_words(value)}")
    if result["utility"] is not None:
        left = result["utility"]
        click.echo(f"{'similarity':15} {left['similarity']:.3f} (correlation with before)")
        accuracies = f"{left['accuracy_before']:.3f} → {left['accuracy']:.3f}"
        click.echo(f"{'accuracy':15} {accuracies} ({left['points_lost']:.1f} points lost)")
    attacking = result["seconds"]
    click.echo(f"took {took:.1f} s: {attacking:.1f} to attack, the rest to read texts and to ask")


@command.command("suite")
@click.argument("key_file", metavar="KEY", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the results; an interrupted suite goes on from there.",
)
@click.option(
    "--only", multiple=True, metavar="NAME", help="Trials with this attack; may be repeated."
)
@click.option(
    "--try", "tried", multiple=True, metavar="ATTACK", help="This instead of the usual trials."
)
@texts_option
@task_option
@reference_option
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Attacks at a time, each in a process of its own.",
)
@key_passphrase_option
@device_option
@quiet_option
@json_option
def suite(
    key_file: Path,
    model: Path,
    out: Path,
    only: tuple[str, ...],
    tried: tuple[str, ...],
    texts: Path | None,
    task: Path | None,
    reference: Path | None,
    jobs: int,
    key_passphrase_file: Path | None,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Try all attacks on the marked folder MODEL, and see what is left of KEY's evidence.

    Writes attacks.json, attacks.csv and the page attacks.html into the folder.

    \b
    Example:
      nsmark attack suite owner.nsmark marked/model --out tried
      nsmark attack suite owner.nsmark marked/model --out tried --only pruning --only whitening
      nsmark attack suite owner.nsmark marked/model --out tried --try 'pruning + whitening'
    """
    key = load_key(key_file, key_passphrase_file)

    def run_all() -> list[Row]:
        from nsmark.attacks.expression import parse_attack, written
        from nsmark.attacks.material import gather_material
        from nsmark.attacks.plan import UNTOUCHED, suite_plan
        from nsmark.attacks.suite import run_suite

        if tried:
            plan = [UNTOUCHED, *dict.fromkeys(written(parse_attack(each)) for each in tried)]
        else:
            plan = suite_plan(only, with_reference=reference is not None)
        material = gather_material(texts, task, device=device, reference=reference)
        with progress_bar("attacking", quiet) as update:
            update(0, len(plan), "the marked model is asked")
            return run_suite(
                key, model, out, material, plan, jobs=jobs, on_begin=update, on_trial=update
            )

    try:
        rows = _loaded(run_all)
    except KeyboardInterrupt as interrupt:
        kept = len(list((out / "rows").glob("*.json")))
        if not kept:
            raise
        hint = f"{kept} attacks are kept in {out}: the same command goes on from there"
        stopped = NsmarkError("interrupted", hint)
        stopped.exit_code = 130  # as for every interruption
        raise stopped from interrupt
    from nsmark.attacks.comparison import counted

    _write_comparison(rows, out, key.signed_claim.claim.owner, bool(texts), bool(task))
    if as_json:
        echo_json({"out": str(out), "attacks": [row.to_mapping() for row in rows]})
        return
    for row in rows:
        if row.utility is None:
            click.echo(f"{'not run':18} {row.attack}: {one_line(str(row.error))}")
        else:
            lost = 1 - row.utility.similarity
            click.echo(f"{row.verdict:18} similarity lost {lost:6.3f}  {row.attack}")
    click.echo(f"\n{counted(rows)}")
    click.echo(f"page  {out / 'attacks.html'}")


@command.command("recover")
@click.argument("key_file", metavar="KEY", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("suspect")
@key_passphrase_option
@device_option
@json_option
def recover_command(
    key_file: Path, suspect: str, key_passphrase_file: Path | None, device: str, as_json: bool
) -> None:
    """Undo a linear map of SUSPECT's outputs and extract again: a diagnostic, no evidence.

    A map fitted from the outputs of any model to the owner's gives the mark back. The same number
    from random outputs is told beside it.

    \b
    Example:
      nsmark attack recover owner.nsmark stolen
    """
    key = load_key(key_file, key_passphrase_file)

    def recovered() -> dict[str, Any]:
        from nsmark.api.opening import Opening
        from nsmark.attacks.recovery import recover
        from nsmark.verification.evidence import ask
        from nsmark.verification.questions import key_questions

        answers = ask(key_questions(key, 0), Opening(key, device).open(suspect))
        return recover(key, answers.triggered).to_mapping()

    found = _loaded(recovered)
    if as_json:
        echo_json(found)
        return
    for name, value in (
        ("extraction rate as it is", found["before"]),
        ("after recovery", found["recovered"]),
        ("recovered from random outputs", found["noise"]),
    ):
        click.echo(f"{name:31} {'–' if value is None else format(value, '.3f')}")
    click.echo("no evidence: a map fitted to the owner's outputs carries the mark by itself")


@command.command("forge")
@click.argument("key_file", metavar="KEY", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("suspect")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@key_passphrase_option
@device_option
@json_option
def forge_command(
    key_file: Path,
    suspect: str,
    seed: int,
    key_passphrase_file: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Measure SUSPECT with wrong parts of KEY: trigger, signature, extractor, null space.

    What every statistic says to a claimant who has only part of the key.

    \b
    Example:
      nsmark attack forge owner.nsmark marked/model
    """
    key = load_key(key_file, key_passphrase_file)

    def measured() -> list[dict[str, Any]]:
        from nsmark.api.opening import Opening
        from nsmark.attacks.wrong_keys import with_wrong_parts
        from nsmark.suspects.recorded import RecordedOutputs

        opened = Opening(key, device).open(suspect)
        if isinstance(opened, RecordedOutputs):
            raise UsageError("recorded outputs answer no other trigger", "give a model to be asked")
        return [row.to_mapping() for row in with_wrong_parts(key, opened, seed)]

    rows = _loaded(measured)
    if as_json:
        echo_json(rows)
        return
    heads = ("extraction rate", "matching degree", "derived", "pairs")
    click.echo(f"{'what is wrong':42}" + "".join(f"{head:>17}" for head in heads))
    for row in rows:
        more = (row["derived_extraction_rate"], row["pair_code_rate"])
        cells = [f"{row['extraction_rate']:17.3f}", f"{row['matching_degree']:17.4g}"]
        cells += [f"{'–' if value is None else format(value, '.3f'):>17}" for value in more]
        click.echo(f"{row['part']:42}{''.join(cells)}".rstrip())


def _write_comparison(
    rows: list[Row], out: Path, owner: str, own_texts: bool, own_task: bool
) -> None:
    from nsmark.attacks.comparison import comparison_page, csv_table
    from nsmark.files import write_atomic, write_json
    from nsmark.report import library_versions

    words = ["nsmark attack suite KEY MODEL --out FOLDER"]
    words += ["--texts TEXTS"] if own_texts else []
    words += ["--task TASK"] if own_task else []
    about = [
        f"The mark of {owner} was attacked as a thief would who holds the model's weights.",
        "Every attacked model was asked the key's texts, as it would be served, and judged by the "
        "key's own controls. What it is still good for was measured on the task's texts.",
        "The file attacks.csv beside this page holds every statistic.",
        f"To repeat it: {' '.join(words)}",
    ]
    write_json(
        out / "attacks.json",
        {"attacks": [row.to_mapping() for row in rows], "versions": library_versions()},
    )
    write_atomic(out / "attacks.csv", csv_table(rows).encode("utf-8"))
    write_atomic(out / "attacks.html", comparison_page(rows, about).encode("utf-8"))


def _in_words(value: object) -> str:
    """Return what an attack says of itself as a reader would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"--set {pair[:40]!r} has no '='", "write --set name=value")
        settings[key.strip()] = value
    return settings


def _loaded(call: Any) -> Any:
    """Call what needs torch, saying how to install it where it is missing."""
    try:
        return call()
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
