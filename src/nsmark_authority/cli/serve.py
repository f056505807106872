"""``nsmark serve``: a certification authority on this machine."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.output import echo_json, json_option
from nsmark.errors import MissingExtraError
from nsmark.files import write_atomic
from nsmark_authority.giving_way import NICENESS

if TYPE_CHECKING:
    from nsmark_authority.service import Authority
    from nsmark_authority.settings import AuthoritySettings

_DAY_SECONDS = 24 * 3600
_DATABASE_VARIABLE = "NSMARK_DATABASE"
_QUEUE_VARIABLE = "NSMARK_QUEUE"
_folder = click.Path(file_okay=False, path_type=Path)
_file = click.Path(dir_okay=False, path_type=Path)
_count = click.IntRange(min=0)


@click.command()
@click.option(
    "--folder",
    type=_folder,
    default=Path("nsmark-authority"),
    show_default=True,
    help="Keys, database and sealed content; made if it is not there.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8321,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--name", help="Name of a new authority: its log's origin, such as its host name.")
@click.option(
    "--database",
    envvar=_DATABASE_VARIABLE,
    help=f"postgresql://USER:PASSWORD@HOST/NAME (or {_DATABASE_VARIABLE}); else SQLite.",
)
@click.option("--timestamp-url", help="Time-stamp authority (RFC 3161); else a local key.")
@click.option("--timestamp-roots", type=_file, help="PEM file with its root certificates.")
@click.option(
    "--evidence-roots",
    type=_file,
    metavar="PEM",
    help="Roots of time stamps from elsewhere that date what respondents deposit.",
)
@click.option(
    "--control",
    "controls",
    type=_folder,
    multiple=True,
    metavar="DIR",
    help="An innocent model, or a folder of such; repeatable.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="HOST:PORT",
    help="A private address that may be asked as a suspect; repeatable.",
)
@click.option(
    "--queue",
    envvar=_QUEUE_VARIABLE,
    help=f"redis://… (or {_QUEUE_VARIABLE}); else a file in the folder.",
)
@click.option(
    "--answer-days",
    type=click.FloatRange(min=0, max=3650),
    default=14.0,
    show_default=True,
    help="Time in which a dispute may be answered.",
)
@click.option("--no-worker", is_flag=True, help="Start no worker; another machine has one.")
@click.option(
    "--worker-niceness",
    type=click.IntRange(0, NICENESS),
    default=NICENESS,
    show_default=True,
    help="How far the worker lets others go first; with the default it may wait for ever where "
    "something else is always busy.",
)
@click.option("--admin-token", type=_file, help="Write a new token for those who run it here.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe X-Forwarded-For from here; repeatable.",
)
@click.option("--reads-per-minute", type=_count, default=1200, show_default=True, help="0: any.")
@click.option("--writes-per-minute", type=_count, default=60, show_default=True, help="0: any.")
@click.option("--enrolments-per-minute", type=_count, default=20, show_default=True, help="0: any.")
@click.option(
    "--checks-per-minute",
    type=_count,
    default=120,
    show_default=True,
    help="Receipts checked for one address; 0: any.",
)
@click.option(
    "--connections-per-address",
    type=_count,
    default=64,
    show_default=True,
    help="Open at once; not of this machine, nor of proxies; 0: any.",
)
@json_option
def command(
    folder: Path,
    host: str,
    port: int,
    name: str | None,
    database: str | None,
    timestamp_url: str | None,
    timestamp_roots: Path | None,
    evidence_roots: Path | None,
    controls: tuple[Path, ...],
    allowed: tuple[str, ...],
    queue: str | None,
    answer_days: float,
    no_worker: bool,
    worker_niceness: int,
    admin_token: Path | None,
    proxies: tuple[str, ...],
    reads_per_minute: int,
    writes_per_minute: int,
    enrolments_per_minute: int,
    checks_per_minute: int,
    connections_per_address: int,
    as_json: bool,
) -> int:
    """Run a certification authority: registry, log, receipts, disputes.

    It listens on this machine alone unless --host says otherwise; before it goes on a network, put
    a proxy with TLS in front of it. Ctrl-C stops it, worker and all.

    \b
    Example:
      nsmark serve --folder authority
      nsmark serve --folder authority --control bert-base --control roberta-base
    """
    try:
        from nsmark_authority.folder import is_open_to_others
        from nsmark_authority.packaged_texts import publish_packaged_texts
        from nsmark_authority.queueing import open_queue
        from nsmark_authority.sandbox import harden_process
        from nsmark_authority.service import open_authority
        from nsmark_authority.settings import AuthoritySettings
        from nsmark_authority.web.app import create_app
        from nsmark_authority.web.checkers import usual_processes
        from nsmark_authority.web.options import WebOptions
        from nsmark_authority.web.server import (
            WebServer,
            is_loopback,
            listen,
            log_to_standard_error,
            url_of,
        )
        from nsmark_authority.web.worker_process import PRIVATE_UMASK, WorkerProcess
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "authority") from error

    settings = AuthoritySettings(
        folder=folder,
        name=name,
        database_url=database,
        timestamp_url=timestamp_url,
        timestamp_roots=timestamp_roots,
        evidence_roots=evidence_roots,
        control_models=controls,
        allowed_suspects=allowed,
        queue_url=queue,
        answer_seconds=round(answer_days * _DAY_SECONDS),
    )
    options = WebOptions(
        reads_per_minute=reads_per_minute,
        writes_per_minute=writes_per_minute,
        enrolments_per_minute=enrolments_per_minute,
        checks_per_minute=checks_per_minute,
        connections_per_address=connections_per_address,
        check_processes=usual_processes(),
    )
    with contextlib.ExitStack() as stack:
        # Whatever is written from here on is nobody else's, whoever forgot to say so.
        stack.callback(os.umask, os.umask(PRIVATE_UMASK))
        harden_process()
        listening = stack.enter_context(listen(host, port))
        authority = stack.enter_context(contextlib.closing(open_authority(settings)))
        if is_open_to_others(folder):
            click.echo(
                f"warning: other users of this machine can look into {folder}; "
                f"close it: chmod 700 {folder}",
                err=True,
            )
        publish_packaged_texts(authority)
        if admin_token is not None:
            _write_admin_token(authority, admin_token)
        waker = stack.enter_context(contextlib.closing(open_queue(settings)))
        log_to_standard_error()
        app = create_app(authority, options, queue=waker, has_worker=not no_worker)
        if not no_worker:
            stack.enter_context(
                WorkerProcess(
                    [*_worker_arguments(settings), "--niceness", str(worker_niceness)],
                    _worker_secrets(settings),
                )
            )
        is_open = not is_loopback(listening)
        announce = partial(_announce, authority, url_of(listening), is_open, as_json)
        # The server raises the signal that ended it again, for whoever else waits for it.
        with contextlib.suppress(KeyboardInterrupt):
            WebServer(app, proxies, announce).run(sockets=[listening])
    return 0


def _write_admin_token(authority: Authority, path: Path) -> None:
    issued = authority.accounts.issue(("file", "dispute", "admin"), label="admin")
    write_atomic(path, f"{issued.token}\n".encode("ascii"), 0o600, overwrite=False)
    authority.accounts.note("nsmark serve", "token", issued.account.token_id, "made")


def _worker_arguments(settings: AuthoritySettings) -> list[str]:
    arguments = ["--folder", str(settings.folder)]
    for control in settings.control_models:
        arguments += ["--control", str(control)]
    for allowed in settings.allowed_suspects:
        arguments += ["--allow", allowed]
    if settings.timestamp_url is not None:
        arguments += ["--timestamp-url", settings.timestamp_url]
        arguments += ["--timestamp-roots", str(settings.timestamp_roots)]
    days = settings.answer_seconds / _DAY_SECONDS
    return [*arguments, "--answer-days", str(days), "--parent", str(os.getpid())]


def _worker_secrets(settings: AuthoritySettings) -> dict[str, str]:
    """Return what may hold a password, as variables: arguments can be read by every user."""
    given = {
        _DATABASE_VARIABLE: settings.database_url,
        _QUEUE_VARIABLE: settings.queue_url,
    }
    return {name: value for name, value in given.items() if value is not None}


def _announce(authority: Authority, url: str, is_open: bool, as_json: bool) -> None:
    settings = authority.settings
    public_file = settings.folder / "signing.pub"
    if as_json:
        document: dict[str, Any] = {
            "url": url,
            "name": authority.name,
            "folder": str(settings.folder),
            "public_key": authority.public_key.to_pem(),
            "fingerprint": authority.public_key.fingerprint,
            "is_local_time": authority.is_local_time,
            "has_controls": bool(settings.control_models),
        }
        echo_json(document)
        return
    click.echo(f"authority   {authority.name}")
    click.echo(f"address     {url}")
    click.echo(f"public key  {authority.public_key.fingerprint}  ({public_file})")
    if authority.is_local_time:
        click.echo("time        a local key: proves no time to strangers (see --timestamp-url)")
    else:
        click.echo(f"time        {settings.timestamp_url}")
    if not settings.control_models:
        click.echo("controls    none: filings wait until --control names innocent models")
    if is_open:
        click.echo("network     open, without TLS: put a proxy with TLS in front of it")
    click.echo("stop        Ctrl-C")
