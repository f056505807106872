"""``nsmark authority``: what those do who run a certification authority."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from nsmark.cli.output import echo_json, find_passphrase, json_option, one_line
from nsmark.errors import MissingExtraError, UsageError
from nsmark.files import read_bounded

if TYPE_CHECKING:
    from nsmark_authority.backup import BackupSummary
    from nsmark_authority.records import Account
    from nsmark_authority.service import Authority
    from nsmark_authority.settings import AuthoritySettings

F = TypeVar("F", bound=Callable[..., Any])

_DATABASE_VARIABLE = "NSMARK_DATABASE"
_PASSPHRASE_VARIABLE = "NSMARK_BACKUP_PASSPHRASE"  # noqa: S105 - a name, not a passphrase
_DAY_SECONDS = 24 * 3600
_WHO = "nsmark authority"
_folder = click.Path(file_okay=False, path_type=Path)
_file = click.Path(dir_okay=False, path_type=Path)

_database_option = click.option(
    "--database",
    envvar=_DATABASE_VARIABLE,
    help=f"postgresql://USER:PASSWORD@HOST/NAME (or {_DATABASE_VARIABLE}); else SQLite.",
)
_passphrase_option = click.option(
    "--passphrase-file",
    type=_file,
    help=f"File with the back-up's passphrase (else {_PASSPHRASE_VARIABLE}, else a prompt).",
)


def _authority_options(function: F) -> F:
    """Add the options that say which authority is meant."""
    option = click.option(
        "--folder",
        type=_folder,
        default=Path("nsmark-authority"),
        show_default=True,
        help="The authority's, as given to `nsmark serve`.",
    )
    return option(_database_option(function))


@click.group("authority", no_args_is_help=False)
def command() -> None:
    """Look after an authority: back-up, restore, check, tokens.

    Everything here may be done while `nsmark serve` runs on the same folder.

    \b
    Example:
      nsmark authority backup --folder authority --out monday.backup
      nsmark authority restore monday.backup --folder restored
      nsmark authority check --folder restored
    """


@command.command("backup")
@_authority_options
@click.option("--out", "path", type=_file, required=True, help="The back-up; a new file.")
@click.option("--plain", is_flag=True, help="Not encrypted: whoever reads it is the authority.")
@_passphrase_option
@json_option
def backup(
    folder: Path,
    database: str | None,
    path: Path,
    plain: bool,
    passphrase_file: Path | None,
    as_json: bool,
) -> int:
    """Write everything an authority is into one encrypted file, while it goes on working.

    The file holds its keys, its log and the sealed content. Keep the passphrase elsewhere: without
    it the back-up is worth nothing.

    \b
    Example:
      nsmark authority backup --folder authority --out monday.backup
    """
    if plain and passphrase_file is not None:
        raise UsageError("a plain back-up has no passphrase", "leave out one of the two options")
    with _needs_extra():
        from nsmark_authority.backup import write_backup
    settings = _settings(folder, database)
    passphrase = None
    if not plain:
        passphrase = _passphrase(passphrase_file, confirm=True)
    written = write_backup(settings, path, passphrase)
    if as_json:
        echo_json(
            {
                "path": str(path),
                "sha256": written.sha256,
                "bytes": written.num_bytes,
                "encrypted": passphrase is not None,
                **_summary(written.holds),
            }
        )
        return 0
    click.echo(f"back-up     {path}  ({written.num_bytes:,} bytes)")
    click.echo(f"sha256      {written.sha256}")
    _show(written.holds)
    if plain:
        click.echo("warning: it is not encrypted; whoever reads it is the authority", err=True)
    return 0


@command.command("restore")
@click.argument("path", metavar="FILE", type=_file)
@click.option("--folder", type=_folder, required=True, help="A new folder.")
@_database_option
@_passphrase_option
@json_option
def restore(
    path: Path, folder: Path, database: str | None, passphrase_file: Path | None, as_json: bool
) -> int:
    """Make an authority from a back-up, in a new folder and an empty database of either kind.

    Everything is checked before anything is there: digests, signatures, time stamps, the tree, the
    sealed content. Make sure that the old authority does not run any more; of what it did after the
    back-up, nothing is known here.

    \b
    Example:
      nsmark authority restore monday.backup --folder restored
    """
    with _needs_extra():
        from nsmark_authority.archive import is_encrypted_archive
        from nsmark_authority.restoring import restore_backup
    settings = _settings(folder, database)
    passphrase = _passphrase(passphrase_file) if is_encrypted_archive(path) else None
    summary = restore_backup(path, settings, passphrase)
    if as_json:
        echo_json({"folder": str(folder), **_summary(summary)})
        return 0
    click.echo(f"restored    {folder}")
    _show(summary)
    click.echo("note        entries made after the back-up are missing: monitors will see it")
    click.echo("note        tokens revoked after the back-up are good again: revoke them")
    return 0


@command.command("check")
@_authority_options
@json_option
def check(folder: Path, database: str | None, as_json: bool) -> int:
    """Check everything an authority holds: log, tree, time stamps, tables, sealed content.

    Exits with 1, and says what, if anything is not as it must be.

    \b
    Example:
      nsmark authority check --folder authority
    """
    with _needs_extra():
        from nsmark_authority.checking import check_authority
    report = check_authority(_settings(folder, database))
    if as_json:
        echo_json({"is_sound": not report.problems, **asdict(report)})
    else:
        click.echo(f"authority   {report.authority}")
        click.echo(f"entries     {report.num_entries:,}")
        click.echo(f"contents    {report.num_contents:,}")
        for problem in report.problems:
            click.echo(f"problem     {one_line(problem)}")
        if not report.problems:
            click.echo("sound       everything is as it must be")
    return 1 if report.problems else 0


@command.command("rebuild")
@_authority_options
@json_option
def rebuild(folder: Path, database: str | None, as_json: bool) -> int:
    """Make every table that follows from the log anew.

    \b
    Example:
      nsmark authority rebuild --folder authority
    """
    with _opened(_settings(folder, database)) as authority:
        count = authority.rebuild_views()
        authority.accounts.note(_WHO, "rebuild", str(count), "done")
    if as_json:
        echo_json({"num_entries": count})
    else:
        click.echo(f"rebuilt     from {count:,} entries")
    return 0


@command.command("publish")
@click.argument("kind", metavar="word-list|pool", type=click.Choice(["word-list", "pool"]))
@click.argument("path", metavar="FILE", type=_file)
@_authority_options
@click.option("--name", required=True, help="A name for people.")
@click.option("--note", default="", help="Where it comes from.")
@click.option("--timestamp-url", help="Time-stamp authority, as given to `nsmark serve`.")
@click.option("--timestamp-roots", type=_file, help="PEM file with its root certificates.")
@json_option
def publish(
    kind: str,
    path: Path,
    folder: Path,
    database: str | None,
    name: str,
    note: str,
    timestamp_url: str | None,
    timestamp_roots: Path | None,
    as_json: bool,
) -> int:
    """Publish a word list or a pool of texts (UTF-8, one per line) that keys may be made from.

    It is logged, served from now on, and named by its digest.

    \b
    Example:
      nsmark authority publish word-list words.txt --folder authority --name "rare words, 2"
    """
    settings = _settings(
        folder, database, timestamp_url=timestamp_url, timestamp_roots=timestamp_roots
    )
    from nsmark.core.texts import decode_lines, lines_digest

    with _opened(settings) as authority:
        content = read_bounded(path, settings.max_publication_bytes, kind)
        what: Literal["word_list", "pool"] = "word_list" if kind == "word-list" else "pool"
        receipt = authority.publish(what, name, content, note=note)
    digest = lines_digest(decode_lines(content))
    if as_json:
        echo_json({"digest": digest, "entry_id": receipt.entry_id, "index": receipt.index})
    else:
        click.echo(f"published   {one_line(name)}")
        click.echo(f"digest      {digest}")
        click.echo(f"entry       {receipt.index}  {receipt.entry_id}")
    return 0


@command.group("tokens", no_args_is_help=False)
def tokens() -> None:
    """List, make and revoke the tokens that admit to writing.

    \b
    Example:
      nsmark authority tokens issue --folder authority --scope admin --label "night shift"
    """


@tokens.command("list")
@_authority_options
@click.option("--owner", metavar="FINGERPRINT", help="Only those of one owner.")
@json_option
def list_tokens(folder: Path, database: str | None, owner: str | None, as_json: bool) -> int:
    """List tokens, the newest first; the tokens themselves are not known.

    \b
    Example:
      nsmark authority tokens list --folder authority
    """
    with _opened(_settings(folder, database)) as authority:
        accounts = authority.accounts.tokens(owner)
    if as_json:
        echo_json({"tokens": [asdict(account) for account in accounts]})
        return 0
    for account in accounts:
        click.echo(_describe(account))
    return 0


@tokens.command("issue")
@_authority_options
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["file", "dispute", "admin"]),
    multiple=True,
    required=True,
    help="What it is good for; repeatable.",
)
@click.option("--label", default="", help="A name for people.")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it lives; default: a year.")
@click.option("--owner", metavar="FINGERPRINT", help="Whose it is; default: the authority's own.")
@json_option
def issue_token(
    folder: Path,
    database: str | None,
    scopes: tuple[str, ...],
    label: str,
    days: int | None,
    owner: str | None,
    as_json: bool,
) -> int:
    """Make a token and print it; it is shown this once.

    \b
    Example:
      nsmark authority tokens issue --folder authority --scope admin --label "night shift"
    """
    with _opened(_settings(folder, database)) as authority:
        from nsmark_authority.records import SCOPES

        if owner is not None:
            authority.registry.owner(owner)
        issued = authority.accounts.issue(
            [scope for scope in SCOPES if scope in scopes],
            fingerprint=owner,
            label=label,
            seconds=None if days is None else days * _DAY_SECONDS,
        )
        authority.accounts.note(_WHO, "token", issued.account.token_id, "made")
    if as_json:
        echo_json({"token": issued.token, **asdict(issued.account)})
    else:
        click.echo(issued.token)
        click.echo(_describe(issued.account), err=True)
    return 0


@tokens.command("revoke")
@click.argument("token_id", metavar="[ID]", required=False)
@_authority_options
@click.option("--owner", metavar="FINGERPRINT", help="All of one owner, instead of an ID.")
@json_option
def revoke_token(
    token_id: str | None, folder: Path, database: str | None, owner: str | None, as_json: bool
) -> int:
    """Make the token of this id (see the list) worthless from now on, or all of one owner.

    \b
    Example:
      nsmark authority tokens revoke 0123456789abcdef --folder authority
      nsmark authority tokens revoke --owner FINGERPRINT --folder authority
    """
    if (token_id is None) == (owner is None):
        raise UsageError("either an ID or --owner is needed", "see `nsmark authority tokens list`")
    with _opened(_settings(folder, database)) as authority:
        if owner is not None:
            authority.registry.owner(owner)
            revoked = authority.accounts.revoke_all(owner)
        else:
            revoked = [authority.accounts.revoke(str(token_id))]
        for account in revoked:
            authority.accounts.note(_WHO, "token", account.token_id, "revoked")
    if as_json:
        one = asdict(revoked[0]) if owner is None else {"tokens": [asdict(a) for a in revoked]}
        echo_json(one)
        return 0
    for account in revoked:
        click.echo(_describe(account))
    return 0


@contextlib.contextmanager
def _needs_extra() -> Iterator[None]:
    """Say which extra is missing, if a package is."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "authority") from error


@contextlib.contextmanager
def _opened(settings: AuthoritySettings) -> Iterator[Authority]:
    """Open an authority that is there; none is made."""
    with _needs_extra():
        from nsmark_authority.checking import require_authority
        from nsmark_authority.service import open_authority
    require_authority(settings)
    with contextlib.closing(open_authority(settings)) as authority:
        yield authority


def _settings(folder: Path, database: str | None, **others: Any) -> AuthoritySettings:
    with _needs_extra():
        from nsmark_authority.settings import AuthoritySettings
    return AuthoritySettings(folder=folder, database_url=database, **others)


def _passphrase(file: Path | None, *, confirm: bool = False) -> bytes:
    return find_passphrase(file, _PASSPHRASE_VARIABLE, "back-up", confirm=confirm)


def _summary(summary: BackupSummary) -> dict[str, Any]:
    return {
        "authority": summary.authority,
        "num_entries": summary.num_entries,
        "num_contents": summary.num_contents,
        "checkpoint": summary.checkpoint.decode("utf-8"),
    }


def _show(summary: BackupSummary) -> None:
    size, root = summary.checkpoint.decode("utf-8").split("\n")[1:3]
    click.echo(f"authority   {summary.authority}")
    click.echo(f"checkpoint  {size} entries, root {root}")
    click.echo(f"contents    {summary.num_contents:,}")


def _describe(account: Account) -> str:
    life = f"until {account.expires}"
    if account.revoked is not None:
        life = f"revoked {account.revoked}"
    whose = "the authority's" if account.fingerprint is None else account.fingerprint[:16]
    scopes = ",".join(account.scopes)
    return f"{account.token_id}  {scopes}  {life}  {whose}  {one_line(account.label)}".rstrip()
