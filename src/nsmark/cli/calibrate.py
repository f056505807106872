"""``nsmark calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsmark.cli.identity import load_identity
from nsmark.cli.inspect import load_key
from nsmark.cli.output import (
    device_option,
    echo_json,
    find_passphrase,
    identity_passphrase_option,
    json_option,
    key_passphrase_option,
    progress_bar,
    quiet_option,
)

if TYPE_CHECKING:
    from nsmark.api.calibrating import CalibrationResult

_file = click.Path(dir_okay=False, path_type=Path)
_folder = click.Path(path_type=Path)


@click.command("calibrate")
@click.argument("key_file", metavar="KEY", type=_file)
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
    "--corpus", metavar="TEXTS", help="Texts to fine-tune controls on; default: built in."
)
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
    corpus: str | None,
    tasks: int,
    steps: int,
    rate: float,
    seed: int,
    out: Path,
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
    """
    from nsmark.api.calibrating import CalibrationSettings, calibrate_key
    from nsmark.corpus import training_texts
    from nsmark.files import ensure_new_file
    from nsmark.keyfile import is_encrypted, write_key
    from nsmark.payload import read_texts

    ensure_new_file(out)
    identity = load_identity(identity_file, passphrase_file)
    key = load_key(key_file, key_passphrase_file)
    # A key that was encrypted stays so.
    passphrase = None
    if is_encrypted(key_file.read_bytes()[:64]):
        passphrase = find_passphrase(key_passphrase_file, "NSMARK_KEY_PASSPHRASE", "key file")
    with progress_bar("measuring", quiet) as update:
        result = calibrate_key(
            key,
            identity,
            reference,
            texts=read_texts(corpus) if corpus is not None else training_texts(),
            clean=clean,
            owner_model=owner_model,
            settings=CalibrationSettings(num_tasks=tasks, steps=steps, seed=seed, rate=rate),
            device=device,
            on_model=update,
        )
    write_key(result.key, out, passphrase)
    if as_json:
        echo_json({"key": str(out), **result.to_mapping()})
        return
    click.echo(f"key  {out}  (keep it secret)\n")
    click.echo(describe(result))


def describe(result: CalibrationResult) -> str:
    """Return the lines, what would be found, and how sure that is, for people."""
    calibration = result.calibration
    areas = {each.name: each for each in result.separations}
    lines = [f"{'statistic':28}{'line':>9}{'closest innocent':>18}{'farthest theft':>16}{'AUC':>7}"]
    for line in calibration.lines:
        row = f"{line.name:28}{line.threshold:9.3f}{line.closest_control:18.3f}"
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
    if result.thefts:
        pairs = zip(result.thefts, result.decisions, strict=True)
        missed = [theft.name for theft, decision in pairs if not decision.passed]
        count = len(result.thefts)
        lines += ["", f"{count - len(missed)} of {count} simulated thefts would be found"]
        lines += [f"  missed: {name}" for name in missed]
    return "\n".join(lines)
