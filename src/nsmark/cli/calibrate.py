"""``nsmark calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsmark.cli.identity import load_identity
from nsmark.cli.inspect import key_argument, load_key, needs_passphrase
from nsmark.cli.output import (
    device_option,
    echo_json,
    find_passphrase,
    identity_passphrase_option,
    json_option,
    key_passphrase_option,
    one_line,
    progress_bar,
    quiet_option,
)

if TYPE_CHECKING:
    from nsmark.api.calibrating import CalibrationResult
    from nsmark.keyfile import WatermarkKey
    from nsmark.report.html import CalibrationFacts

_file = click.Path(dir_okay=False, path_type=Path)
_folder = click.Path(path_type=Path)


@click.command("calibrate")
@key_argument
@click.option("--identity", "identity_file", type=_file, required=True, help="Your .pem file.")
@click.option(
    "--reference",
    type=_folder,
    required=True,
    help="The unmarked model; controls are made from it.",
)
@click.option(
    "--clean",
    multiple=True,
    metavar="SUSPECT",
    help="A further innocent model, as verify takes it; may be repeated.",
)
@click.option(
    "--owner-model",
    type=_folder,
    help="The marked model: thefts are simulated, to see what the lines would find.",
)
@click.option(
    "--other-owner",
    is_flag=True,
    help="Also mark the unmarked model for a made-up owner and measure that: as long as embedding "
    "takes.",
)
@click.option("--corpus", metavar="TEXTS", help="Texts to train controls on; default: built in.")
@click.option(
    "--tasks",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="Fine-tuned controls, each on a task of its own.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Training steps of each.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 0.5, min_open=True, max_open=True),
    default=1e-3,
    show_default=True,
    help="False accusations allowed.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of it all.")
@click.option("--out", type=_file, required=True, help="The new key file.")
@click.option(
    "--report",
    "report_file",
    type=_file,
    help="Write a page with plots to this HTML file, to read and to print.",
)
@identity_passphrase_option
@key_passphrase_option
@device_option
@quiet_option
@json_option
def command(
    key_file: Path,
    identity_file: Path,
    reference: Path,
    clean: tuple[str, ...],
    owner_model: Path | None,
    other_owner: bool,
    corpus: str | None,
    tasks: int,
    steps: int,
    rate: float,
    seed: int,
    out: Path,
    report_file: Path | None,
    passphrase_file: Path | None,
    key_passphrase_file: Path | None,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure innocent models under KEY and write a key that holds them as controls.

    Controls are made from the unmarked model: fine-tuned, pruned, noised, quantised, drawn anew,
    read at other layers, cut in rank. The lines of rule 'calibrated' follow from them.

    \b
    Example:
      nsmark calibrate owner.nsmark --identity alice.pem --reference my-model --out new.nsmark
      nsmark calibrate owner.nsmark --identity a.pem --reference m --owner-model marked --out new
      nsmark calibrate owner.nsmark --identity a.pem --reference m --out new --report page.html
    """
    from nsmark.api.calibrating import calibrate_key
    from nsmark.api.population import CalibrationSettings
    from nsmark.corpus import training_texts
    from nsmark.files import ensure_new_file, write_atomic
    from nsmark.keyfile import write_key
    from nsmark.payload import read_texts

    for path in filter(None, (out, report_file)):
        ensure_new_file(path)
    identity = load_identity(identity_file, passphrase_file)
    key = load_key(key_file, key_passphrase_file)
    # A key that was encrypted stays so.
    passphrase = None
    if needs_passphrase(key_file):
        passphrase = find_passphrase(key_passphrase_file, "NSMARK_KEY_PASSPHRASE", "key file")
    with progress_bar("measuring", quiet) as update:
        result = calibrate_key(
            key,
            identity,
            reference,
            texts=read_texts(corpus) if corpus is not None else training_texts(),
            clean=clean,
            owner_model=owner_model,
            settings=CalibrationSettings(
                num_tasks=tasks, steps=steps, seed=seed, rate=rate, other_owner=other_owner
            ),
            device=device,
            on_model=update,
        )
    write_key(result.key, out, passphrase)
    if report_file is not None:
        from nsmark.report.html import render_calibration

        # Places of files are left out: they differ from one machine to the next, and a page that
        # is handed on need not tell who sat where.
        words = ["nsmark calibrate KEY --identity IDENTITY --reference UNMARKED"]
        words += ["--clean MODEL"] * len(clean)
        words += ["--owner-model MARKED"] if owner_model is not None else []
        words += ["--other-owner"] if other_owner else []
        words += ["--corpus TEXTS"] if corpus is not None else []
        words += [f"--tasks {tasks} --steps {steps} --rate {rate:g} --seed {seed}"]
        words += ["--out NEW --report PAGE"]
        page = render_calibration(page_facts(result, key, " ".join(words)))
        write_atomic(report_file, page.encode("utf-8"))
    if as_json:
        echo_json({"key": str(out), **result.to_mapping()})
        return
    click.echo(f"key  {out}  (keep it secret)\n")
    click.echo(describe(result))


def page_facts(
    result: CalibrationResult, former: WatermarkKey, command_line: str
) -> CalibrationFacts:
    """Return what the page of a calibration is made from.

    Args:
        result: The calibration.
        former: The key as it was.
        command_line: How to repeat it.
    """
    from nsmark.report import library_versions
    from nsmark.report.html import CalibrationFacts
    from nsmark.verification.controls import Control

    return CalibrationFacts(
        owner=former.signed_claim.claim.owner,
        calibration=result.calibration,
        controls=result.compared,
        num_cut=len(result.controls) - len(result.compared),
        thefts=[Control.of(theft) for theft in result.thefts],
        decisions=result.decisions,
        separations=result.separations,
        not_made=result.not_made,
        key_id=result.key.key_id,
        former_key_id=former.key_id,
        key=result.key.public_view(),
        versions=library_versions(),
        command=command_line,
    )


def describe(result: CalibrationResult) -> str:
    """Return the lines, what would be found, and how sure that is, for people."""
    calibration = result.calibration
    areas = {each.name: each for each in result.separations}
    lines = [f"{'statistic':28}{'line':>9}{'closest innocent':>18}{'farthest theft':>16}{'AUC':>7}"]
    for line in calibration.thresholds:
        row = f"{line.name:28}{line.value:9.3f}{line.closest_control:18.3f}"
        if line.name in areas:
            found = areas[line.name]
            row += f"{found.farthest_theft:16.3f}{found.area:7.3f}"
        lines.append(row)
    lines.append("")
    if calibration.rate is None:
        lines.append(f"{calibration.num_models} innocent models: too few to state an error rate")
    else:
        lines.append(
            f"{calibration.num_models} innocent models: at most {calibration.rate:g} of their kind "
            f"accused, with {calibration.confidence:.0%} confidence, if they scatter normally"
        )
    lines.append(
        f"without that assumption: at most {calibration.bound:.2f}, with the same confidence"
    )
    lines += [one_line(each) for each in result.not_made]
    if result.thefts:
        pairs = zip(result.thefts, result.decisions, strict=True)
        missed = [(theft.suspect, d) for theft, d in pairs if d.verdict != "owned"]
        count = len(result.thefts)
        lines += ["", f"{count - len(missed)} of {count} simulated thefts would be found"]
        for name, decision in missed:
            # Where no witness passed, the lines above say all; a refusal has a reason of its own.
            refusal = "" if len(decision.reasons) != 1 else f" ({decision.reasons[0]})"
            lines.append(f"  missed: {name}{refusal}")
    return "\n".join(lines)
