"""``nsmark verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsmark.cli.inspect import load_key
from nsmark.cli.output import (
    device_option,
    echo_error,
    echo_json,
    json_option,
    key_passphrase_option,
    progress_bar,
    quiet_option,
)

_file = click.Path(dir_okay=False, path_type=Path)


def unmeasured(reason: str) -> dict[str, Any]:
    """Return the document of a verification that ended before a report: its names, all null."""
    from nsmark.report import Report, library_versions
    from nsmark.verification import Decision, Verdict

    report = Report(
        decision=Decision(Verdict.COULD_NOT_MEASURE, (reason,)),
        rule="paper",
        evidence=None,
        thresholds=None,
        calibrated_by=None,
        unchecked=(),
        suspect="",
        key_id="",
        claim={},
        versions=library_versions(),
        seconds=0.0,
    )
    return report.to_mapping() | dict.fromkeys(("rule", "suspect", "key_id", "claim", "seconds"))


@click.command("verify")
@click.argument("key_file", metavar="KEY", type=_file)
@click.argument("suspect")
@click.option(
    "--rule",
    type=click.Choice(["paper"]),
    default="paper",
    show_default=True,
    help="How the verdict is reached.",
)
@click.option(
    "--controls",
    multiple=True,
    metavar="SUSPECT",
    help="An innocent model of your own (folder or recorded:FILE); may be repeated.",
)
@click.option(
    "--independent",
    is_flag=True,
    help="Do not trust the owner's controls; give your own with --controls.",
)
@click.option(
    "--pool",
    metavar="TEXTS",
    help="The published pool the key names: FILE[#column] or dataset:NAME, as embed takes it.",
)
@click.option("--word-list", type=_file, help="The published word list the key names.")
@device_option
@key_passphrase_option
@quiet_option
@json_option
def command(
    key_file: Path,
    suspect: str,
    rule: str,
    controls: tuple[str, ...],
    independent: bool,
    pool: str | None,
    word_list: Path | None,
    device: str,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Test whether SUSPECT carries KEY's watermark.

    SUSPECT is hf:DIR, st:DIR, recorded:FILE, or a bare folder. Exit status: 0 owned,
    1 not shown, 2 wrong usage, 3 could not measure.

    \b
    Example:
      nsmark verify marked/owner.nsmark suspect-folder
      nsmark verify marked/owner.nsmark recorded:answers.npz --json
    """
    from nsmark.api import verify
    from nsmark.payload import read_texts, read_word_list

    key = load_key(key_file, key_passphrase_file)
    with progress_bar("asking", quiet) as update:
        report = verify(
            key,
            suspect,
            controls=controls,
            independent=independent,
            pool=read_texts(pool) if pool is not None else None,
            word_list=read_word_list(word_list) if word_list else None,
            device=device,
            on_batch=lambda done, total: update(done, total, "texts"),
        )
    document = report.to_mapping()
    if report.exit_code == 3:
        message, hint = report.decision.reasons[0], report.decision.reasons[-1]
        echo_error(message, hint)
        document |= {"error": message, "hint": hint, "exit_code": report.exit_code}
    if as_json:
        echo_json(document)
    else:
        click.echo(report.to_text())
    return report.exit_code
