"""``nsmark verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.asking import asking_options
from nsmark.cli.inspect import key_argument, load_key
from nsmark.cli.output import (
    device_option,
    echo_error,
    echo_json,
    json_option,
    key_passphrase_option,
    progress_bar,
    quiet_option,
)
from nsmark.errors import UsageError

if TYPE_CHECKING:
    from nsmark.api.fresh import FreshTexts
    from nsmark.suspects.options import QueryOptions

_file = click.Path(dir_okay=False, path_type=Path)


def unmeasured(reason: str) -> dict[str, Any]:
    """Return the document of a verification that ended before a report: its names, all null."""
    from nsmark.report import Report

    return Report.unmeasured(reason).to_mapping() | dict.fromkeys(
        ("rule", "suspect", "key_id", "claim", "seconds")
    )


def fresh_texts(owner_model: Path | None, randomness: str | None) -> FreshTexts | None:
    """Read the options that choose other texts.

    Raises:
        UsageError: A model without randomness, or no hexadecimal number.
    """
    from nsmark.api.fresh import FreshTexts

    if owner_model is None and randomness is None:
        return None
    if randomness is None:
        raise UsageError("--owner-model needs --fresh", "for example: openssl rand -hex 16")
    try:
        return FreshTexts(owner_model, bytes.fromhex(randomness))
    except ValueError as error:
        raise UsageError(
            "--fresh is no hexadecimal number", "for example: openssl rand -hex 16"
        ) from error


@click.command("verify")
@key_argument
@click.argument("suspect")
@click.option(
    "--rule",
    type=click.Choice(["calibrated", "paper"]),
    default="calibrated",
    show_default=True,
    help="How the verdict is reached: lines drawn from controls for a stated error rate, or the "
    "paper's two.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 0.5, min_open=True, max_open=True),
    default=1e-3,
    show_default=True,
    help="False accusations allowed, where there are enough controls to state one.",
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
@click.option(
    "--owner-model",
    type=click.Path(path_type=Path),
    help="The owner's marked model, asked again now; needs --fresh.",
)
@click.option(
    "--fresh",
    metavar="HEX",
    help="Randomness of yours, 32 digits or more: it chooses the texts of the pair code, and with "
    "--owner-model all others.",
)
@click.option(
    "--pair-texts",
    type=click.IntRange(min=0),
    metavar="N",
    help="Ask only the first N texts of the pair code: fewer queries, fewer bits.",
)
@click.option(
    "--pair-word-list", type=_file, help="The published list the words of its pair code come from."
)
@click.option(
    "--report",
    "report_file",
    type=_file,
    help="Write a page with plots to this HTML file, to read and to print.",
)
@click.option(
    "--record", "record_file", type=_file, help="Keep the suspect's answers: a recorded: suspect."
)
@click.option(
    "--show-table",
    is_flag=True,
    help="In the page, draw the pair code's true table beside the one read: for the owner's eyes.",
)
@asking_options
@device_option
@key_passphrase_option
@quiet_option
@json_option
def command(
    key_file: Path,
    suspect: str,
    rule: str,
    rate: float,
    controls: tuple[str, ...],
    independent: bool,
    pool: str | None,
    word_list: Path | None,
    owner_model: Path | None,
    fresh: str | None,
    pair_texts: int | None,
    pair_word_list: Path | None,
    report_file: Path | None,
    record_file: Path | None,
    show_table: bool,
    queries: QueryOptions,
    device: str,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Test whether SUSPECT carries KEY's watermark.

    SUSPECT is hf:DIR, st:DIR, onnx:FILE, openai:URL#model (an embeddings endpoint),
    completions:URL#model (log-probabilities), recorded:FILE, or a bare folder. Exit status:
    0 owned, 1 not shown, 2 wrong usage, 3 could not measure.

    \b
    Example:
      nsmark verify marked/owner.nsmark suspect-folder --report report.html
      nsmark verify marked/owner.nsmark openai:https://api.example.com/v1#embed-1 --cache answers
      nsmark verify marked/owner.nsmark recorded:answers.npz --controls public-model --json
      nsmark verify my.nsmark suspect --owner-model model --fresh 0f1e2d3c4b5a69788796a5b4c3d2e1f0
    """
    from nsmark.api import verify
    from nsmark.files import ensure_new_file, write_atomic
    from nsmark.payload import read_pair_words, read_texts, read_word_list
    from nsmark.suspects import save_recorded

    for path in filter(None, (report_file, record_file)):
        ensure_new_file(path)
    key = load_key(key_file, key_passphrase_file)
    with progress_bar("asking", quiet) as update:
        report = verify(
            key,
            suspect,
            rule=rule,
            controls=controls,
            independent=independent,
            false_accusation_rate=rate,
            fresh=fresh_texts(owner_model, fresh),
            queries=queries,
            pool=read_texts(pool) if pool is not None else None,
            word_list=read_word_list(word_list) if word_list else None,
            pair_word_list=read_pair_words(pair_word_list) if pair_word_list else None,
            num_pair_texts=pair_texts,
            device=device,
            on_batch=lambda done, total: update(done, total, "texts"),
        )
    answers = report.answers
    if record_file is not None and answers is not None:
        save_recorded(record_file, answers.triggered, answers.untriggered, answers.pair_texts)
    if report_file is not None:
        from nsmark.report.html import render_html
        from nsmark.report.pictures import Pictures

        pictures = None
        if answers is not None:
            pictures = Pictures.of(key, answers, report.questions, show_table=show_table)
        write_atomic(report_file, render_html(report, pictures).encode("utf-8"))
    document = report.to_mapping()
    if report.exit_code == 3:
        message, hint = report.decision.reasons[0], report.decision.reasons[-1]
        echo_error(message, hint)
        document |= {"error": message, "hint": hint, "exit_code": report.exit_code}
    if as_json:
        echo_json(document)
    elif report.exit_code != 3:
        click.echo(report.to_text().partition("\n")[0] if quiet else report.to_text())
    return report.exit_code
