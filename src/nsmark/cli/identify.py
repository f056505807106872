"""``nsmark identify``."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsmark.cli.asking import asking_options
from nsmark.cli.inspect import needs_passphrase
from nsmark.cli.output import (
    device_option,
    echo_error,
    echo_json,
    find_passphrase,
    json_option,
    key_passphrase_option,
    one_line,
    progress_bar,
    quiet_option,
)
from nsmark.cli.verify import fresh_texts
from nsmark.errors import FileAccessError, UsageError

if TYPE_CHECKING:
    from nsmark.report.identified import Finding, Identification, IdentificationPlan
    from nsmark.suspects.options import QueryOptions

_file = click.Path(dir_okay=False, path_type=Path)

_MOST_KEYS = 10_000
_MOST_SHOWN = 20


def key_files(places: tuple[Path, ...]) -> list[Path]:
    """Return the files among the places, and the key files in the folders among them.

    Raises:
        FileAccessError: A folder cannot be read.
        UsageError: There is none, or far too many.
    """
    found: list[Path] = []
    for place in places:
        if not place.is_dir():
            found.append(place)
            continue
        try:
            inside = itertools.islice(place.glob("*.nsmark"), _MOST_KEYS + 1)
            found += sorted(inside)
        except OSError as error:
            raise FileAccessError(
                f"cannot look into {place}: {error.strerror or error}", "check the path"
            ) from error
    if not found:
        raise UsageError("the folders hold no key file", "their names end in .nsmark")
    if len(found) > _MOST_KEYS:
        raise UsageError(f"more than {_MOST_KEYS} keys were given", "ask in several parts")
    return found


def passphrase_of(files: list[Path], passphrase_file: Path | None) -> bytes | None:
    """Return the passphrase if a file needs one and it is to be had.

    Found before any progress is shown, which a prompt would disturb.
    """
    if not any(map(needs_passphrase, files)):
        return None
    try:
        return find_passphrase(passphrase_file, "NSMARK_KEY_PASSPHRASE", "key files")
    except UsageError:
        if passphrase_file is not None:
            raise
        return None  # the encrypted keys are listed with their error, the others are tested


@click.command("identify")
@click.argument("suspect")
@click.argument(
    "places", metavar="KEYS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--plan", "plan_only", is_flag=True, help="Say how many queries it takes, and ask nothing."
)
@click.option(
    "--pairs",
    type=int,
    metavar="N",
    help="Ask only N pairs of words of each key: fewer queries, fewer bits.",
)
@click.option(
    "--pair-repeats",
    type=int,
    default=6,
    show_default=True,
    help="Texts asked for each pair of words.",
)
@click.option(
    "--fresh",
    metavar="HEX",
    help="Randomness of yours, 32 digits or more: it chooses pairs and texts. By default drawn "
    "anew and shown; the same again asks the same.",
)
@click.option(
    "--pool", metavar="TEXTS", help="Texts to ask with: FILE[#column] or dataset:NAME, as embed."
)
@click.option(
    "--pair-word-list", type=_file, help="The published list the words of the keys come from."
)
@asking_options
@device_option
@key_passphrase_option
@quiet_option
@json_option
def command(
    suspect: str,
    places: tuple[Path, ...],
    plan_only: bool,
    pairs: int | None,
    pair_repeats: int,
    fresh: str | None,
    pool: str | None,
    pair_word_list: Path | None,
    queries: QueryOptions,
    device: str,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Find which of many KEYS' marks SUSPECT carries: whose licensed copy is it?

    KEYS are key files with a pair code, or folders of *.nsmark files; they may be encrypted with
    one passphrase. SUSPECT is as for verify, but not recorded. It is asked once for all keys, on
    texts that your randomness chooses. At most 20000 texts are sent to an endpoint and 100000 to
    a local model, unless --max-queries says otherwise; an interrupted --cache is used again with
    the same --fresh. Exit status: 0 found, 1 none found, 2 wrong
    usage, 3 could not measure.

    \b
    Example:
      nsmark identify suspect-folder customers/ --plan
      nsmark identify suspect-folder customers/ --pairs 160 --json
      nsmark identify openai:https://api.example.com/v1#embed-1 a.nsmark b.nsmark --price 0.02
    """
    from nsmark.api.identifying import identify
    from nsmark.keyfile import read_key
    from nsmark.payload import read_pair_words, read_texts

    chosen = fresh_texts(None, fresh)
    files = key_files(places)
    passphrase = passphrase_of(files, key_passphrase_file)
    with progress_bar("identifying", quiet) as update:
        result = identify(
            suspect,
            files,
            read=lambda path: read_key(path, passphrase),
            randomness=None if chosen is None else chosen.randomness,
            pool=read_texts(pool) if pool is not None else None,
            word_list=read_pair_words(pair_word_list) if pair_word_list else None,
            pairs_per_key=pairs,
            pair_repeats=pair_repeats,
            device=device,
            queries=queries,
            plan_only=plan_only,
            on_plan=None if quiet or plan_only else show_plan,
            on_progress=update,
        )
    if result.plan is not None and plan_only:
        if as_json:
            echo_json(result.plan.to_mapping())
        else:
            click.echo(result.plan.to_text())
        return 0
    document = result.to_mapping()
    if result.exit_code == 3:
        message = f"none of the {len(files)} key files can be tested"
        hint = "the reasons are listed; `nsmark embed --marks paper,derived,pairs` makes such keys"
        echo_error(message, hint)
        document |= {"error": message, "hint": hint, "exit_code": 3}
    if as_json:
        echo_json(document)
    else:
        click.echo(describe(result))
    return result.exit_code


def show_plan(plan: IdentificationPlan) -> None:
    """Say on standard error what is going to be asked, and how to ask it again."""
    # What an endpoint is sent is told when it is asked.
    click.echo(replace(plan, endpoint=None).to_text(), err=True)
    click.echo(f"to ask the same again: --fresh {plan.randomness}", err=True)


def describe(result: Identification) -> str:
    """Return the keys, the smallest p-value first, for people."""
    tested = [each for each in result.keys if each.p_value is not None]
    refused = [each for each in result.keys if each.error is not None]
    others = [each for each in tested if not each.found]
    lines = []
    if tested:
        lines.append(
            f"{'':6}{'p-value':>9}{'corrected':>11}{'rate':>7}{'pairs':>7}  {'owner':24}  file"
        )
        lines += [_row(each) for each in (*result.found, *others[:_MOST_SHOWN])]
        lines += _more(len(others) - _MOST_SHOWN, "keys, less likely; --json lists all")
        lines.append("")
    if refused:
        lines.append(f"keys that could not be tested: {len(refused)}")
        lines += [
            f"  {one_line(each.file)}: {one_line(each.error or '')}"
            for each in refused[:_MOST_SHOWN]
        ]
        lines += _more(len(refused) - _MOST_SHOWN, "like them; --json lists all")
        lines.append("")
    if result.num_repeated:
        lines.append(f"{result.num_repeated} files hold a key given before: it counts once")
    plan, suspect = result.plan, one_line(result.suspect)
    if plan is None:
        return "\n".join([*lines, f"COULD NOT MEASURE {suspect}: no key to test"])
    lines += [
        f"keys {plan.num_keys}, pairs of words {plan.num_pairs}, queries {plan.num_queries}, "
        f"{result.seconds:.1f} s",
        f"randomness {plan.randomness}",
    ]
    owners = ", ".join(one_line(each.owner or "")[:80] for each in result.found)
    verdict = f"FOUND: {suspect} carries the mark of {owners}"
    if not owners:
        verdict = f"NONE FOUND: no mark of these keys is shown in {suspect}"
    return "\n".join([*lines, verdict])


def _row(finding: Finding) -> str:
    kind = "found" if finding.found else "doubt" if finding.doubt else ""
    owner = one_line(finding.owner or "")
    if len(owner) > 24:
        owner = owner[:23] + "…"
    row = (
        f"{kind:6}{finding.p_value or 0:9.1e}{finding.corrected_p_value or 0:11.1e}"
        f"{finding.rate or 0:7.3f}{finding.pairs or 0:7}  {owner:24}  {one_line(finding.file)}"
    )
    return f"{row}\n{'':6}{one_line(finding.doubt)}" if finding.doubt else row


def _more(count: int, what: str) -> list[str]:
    return [f"  … and {count} {what}"] if count > 0 else []
