"""``nsmark client monitor``: watching a log."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsmark.cli.output import echo_error, json_option, one_line, progress_bar, quiet_option
from nsmark.errors import InputError, UsageError
from nsmark_authority.cli.client.options import Place, any_path, authority_options, file_path
from nsmark_authority.errors import AuthorityError

if TYPE_CHECKING:
    from nsmark_authority.client import Look, Monitor


@click.command("monitor")
@click.option("--owner", "owners", multiple=True, help="Alert on keys under this name.")
@click.option(
    "--public-key",
    "key_files",
    multiple=True,
    type=file_path,
    help="Your .pub file: alert on entries under this key.",
)
@click.option(
    "--receipt",
    "receipts",
    multiple=True,
    type=any_path,
    help="Receipts of what you did yourself, or a folder of them: no alert on those.",
)
@click.option(
    "--state",
    "state_file",
    type=file_path,
    help="What is remembered; default: in your configuration folder.",
)
@click.option("--once", is_flag=True, help="Look once.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    metavar="SECONDS",
    help="Look again and again, until there is an alert.",
)
@authority_options
@quiet_option
@json_option
def monitor(
    owners: tuple[str, ...],
    key_files: tuple[Path, ...],
    receipts: tuple[Path, ...],
    state_file: Path | None,
    once: bool,
    every: float | None,
    place: Place,
    quiet: bool,
    as_json: bool,
) -> int:
    """Watch that the log only grows, and for entries under your name or key.

    Names are compared as people read them: case, accents, and letters of other scripts that look
    the same make no difference. It also alerts when the authority shows another key or other
    time-stamp roots.

    Ends with 1 at the first look that gives an alert. With --json every look is one line of JSON.

    \b
    Example:
      nsmark client monitor --once --owner "Alice" --public-key alice.pub
      nsmark client monitor --every 600 --owner "Alice" --receipt receipts/
    """
    from nsmark.identity import PublicKey
    from nsmark_authority.client import Monitor, Watch
    from nsmark_authority.client.monitor import expected_entries

    if once and every is not None:
        raise UsageError("--once and --every exclude each other", "choose one")
    public_keys = tuple(map(PublicKey.load, key_files))
    watch = Watch(
        owners=owners, public_keys=public_keys, expected=expected_entries(receipts, public_keys)
    )
    trusted = place.store.find(place.url)
    state = state_file or place.seen_file(trusted).with_suffix(".monitor.json")
    # The monitor looks at the authority itself: what has changed is an alert.
    with place.open_client(is_checked=False) as client:
        watcher = Monitor(client.log, trusted, state, watch, client)
        while True:
            try:
                if _look(watcher, quiet, as_json).alerts:
                    return 1
            except (AuthorityError, InputError) as error:
                if every is None:
                    raise
                # It may be back at the next look; a log that is away proves nothing.
                echo_error(str(error), error.hint)
            if every is None:
                return 0
            time.sleep(every)


def _look(watcher: Monitor, quiet: bool, as_json: bool) -> Look:
    with progress_bar("reading the log", quiet) as update:
        return watcher.look(
            tell=lambda look: _tell(look, as_json),
            on_progress=lambda read, total: update(read, total, "entries"),
        )


def _tell(look: Look, as_json: bool) -> None:
    from nsmark_authority.client.monitor import look_document

    if as_json:
        click.echo(json.dumps(look_document(look), allow_nan=False))
        return
    for alert in look.alerts:
        where = "" if alert.entry_id is None else f"  (entry {alert.index}, {alert.entry_id})"
        click.echo(f"ALERT  {alert.kind}: {one_line(alert.message)}{where}")
    count = len(look.alerts)
    alerts = f"{count} alert{'' if count == 1 else 's'}"
    click.echo(f"{look.size} entries, {look.num_new} new, {alerts}")
