"""``nsmark client``: what can be read from an authority."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.output import echo_json, json_option, one_line, progress_bar, quiet_option
from nsmark.errors import UsageError
from nsmark.files import ensure_new_file, write_atomic
from nsmark_authority.cli.client.options import (
    Place,
    authority_options,
    entry_of,
    file_path,
    out_option,
    receipt_document,
    receipt_rows,
    show,
    statement_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nsmark_authority.client import AuthorityClient

_STATES = ["waiting", "admitted", "refused", "revealed", "succeeded", "withdrawn"]
_SCOPES = ["file", "dispute", "admin"]
_GOOD_FILINGS = ("admitted", "revealed", "succeeded")
_PER_CENT = 100
_MAX_COMPARED = 100


@click.command("status")
@click.argument("subject")
@authority_options
@json_option
def status(subject: str, place: Place, as_json: bool) -> None:
    """Show where a filing, dispute or deposit stands (its id, receipt or key file).

    \b
    Example:
      nsmark client status owner.nsmark
    """
    with place.open_client() as client:
        kind, found = client.subject(entry_of(subject))
        if kind == "filing":
            found |= _names_of(client, [found])[0]
    _show_subject(kind, found, as_json)


@click.command("wait")
@click.argument("subject")
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, 365 * 86_400),
    default=3600.0,
    show_default=True,
    help="Seconds after which to give up.",
)
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between questions.",
)
@authority_options
@quiet_option
@json_option
def wait(
    subject: str, seconds: float, every: float, place: Place, quiet: bool, as_json: bool
) -> int:
    """Wait until a filing is admitted or refused, or a dispute is over.

    Ends with 0 if the key is admitted or the claim upheld, with 1 if not.

    \b
    Example:
      nsmark client wait owner.nsmark --for 600
    """
    with place.open_client() as client, _share_bar(quiet) as on_progress:
        kind, found = client.wait(
            entry_of(subject),
            timeout_seconds=seconds,
            every_seconds=every,
            on_progress=on_progress,
        )
    _show_subject(kind, found, as_json)
    if kind == "dispute":
        return _exit_of(str(found.get("outcome")))
    return 0 if kind == "deposit" or found.get("state") in _GOOD_FILINGS else 1


@click.command("ruling")
@click.argument("dispute")
@out_option
@authority_options
@json_option
def ruling(dispute: str, out: Path | None, place: Place, as_json: bool) -> int:
    """Show the ruling in DISPUTE (id or receipt), its signature and place in the log checked.

    Ends with 0 if the claim was upheld, 3 if nothing could be measured, else 1.

    \b
    Example:
      nsmark client ruling dispute.receipt --out ruling.receipt
    """
    from nsmark_authority.client.offline import keep_receipt
    from nsmark_authority.statements import Ruling

    with place.open_client() as client:
        given = client.ruling(entry_of(dispute))
    found = given.statement(Ruling)
    earlier = None if out is None else keep_receipt(out, given.receipt)
    if as_json:
        echo_json(receipt_document(given, out, earlier))
        return _exit_of(found.outcome)
    show(
        [
            ("outcome", found.outcome),
            *(("reason", reason) for reason in found.reasons),
            ("measured", found.verdict),
            ("key", found.key_id),
            *(("other claim", f"{one.owner}, filed {one.time}") for one in found.other_claims),
            ("report", found.report_sha256),
            *receipt_rows(given, out),
        ]
    )
    return _exit_of(found.outcome)


@click.command("report")
@click.argument("dispute")
@click.option("--out", required=True, type=file_path, help="HTML file to write.")
@authority_options
@json_option
def report(dispute: str, out: Path, place: Place, as_json: bool) -> None:
    """Fetch the report of a ruling; it must be the one that the signed ruling names.

    \b
    Example:
      nsmark client report dispute.receipt --out report.html
    """
    ensure_new_file(out)
    with place.open_client() as client:
        content = client.report(entry_of(dispute))
    write_atomic(out, content, overwrite=False)
    _say_written(out, content, as_json)


@click.command("search")
@click.argument("text", required=False, default="")
@click.option("--owner", help="Whole name of an owner.")
@click.option("--key", metavar="HEX", help="Id of a key, or its beginning.")
@click.option("--state", type=click.Choice(_STATES), help="What became of the filing.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many."
)
@authority_options
@json_option
def search(
    text: str,
    owner: str | None,
    key: str | None,
    state: str | None,
    limit: int,
    place: Place,
    as_json: bool,
) -> None:
    """Search the registry for words of a claim, an owner or a key.

    \b
    Example:
      nsmark client search encoder --owner "Alice"
    """
    with place.open_client() as client:
        rows = client.search(text, owner=owner, key=key, state=state, limit=limit)
        rows = [row | names for row, names in zip(rows, _names_of(client, rows), strict=True)]
    if as_json:
        echo_json({"items": rows})
        return
    for row in rows:
        words = [row.get(word, "") for word in ("time", "state", "key_id", "owner", "message")]
        words[3] = _both_names(row)
        click.echo("  ".join(one_line(str(word)) for word in words))
    if not rows:
        click.echo("nothing was found")


@click.command("claim")
@click.argument("subject")
@authority_options
@json_option
def claim(subject: str, place: Place, as_json: bool) -> None:
    """Show a filed claim (id of the key or filing, receipt, key file), checked against the log.

    \b
    Example:
      nsmark client claim owner.nsmark
    """
    from nsmark_authority.statements import Filing

    with place.open_client() as client:
        given, row = client.claim(entry_of(subject))
        filing = given.statement(Filing)
        registered = client.registered_name(filing.signer().fingerprint)
    state = str(row.get("state"))
    if as_json:
        named = {"state": state, "registered_owner": registered, "registry": row}
        echo_json(receipt_document(given, None) | named)
        return
    found = filing.ownership_claim()
    show(
        [
            ("owner", found.owner),
            ("registered as", None if registered == found.owner else registered),
            ("claim", found.message),
            ("key", filing.key_id),
            ("fingerprint", filing.signer().fingerprint),
            ("state", state),
            *_reasons(row),
            *receipt_rows(given, None),
        ]
    )


@click.command("receipt")
@click.argument("subject")
@click.option("--out", type=file_path, help="Where to write it; default: the name of SUBJECT.")
@authority_options
@json_option
def receipt(subject: str, out: Path | None, place: Place, as_json: bool) -> None:
    """Fetch a fresh receipt of an entry, up to the newest checkpoint; an earlier one is kept.

    \b
    Example:
      nsmark client receipt owner.nsmark
    """
    from nsmark_authority.client.offline import keep_receipt, receipt_path
    from nsmark_authority.receipt import RECEIPT_SUFFIX

    path = out
    if path is None:
        path = Path(subject if subject.endswith(RECEIPT_SUFFIX) else receipt_path(Path(subject)))
    with place.open_client() as client:
        given = client.receipt(entry_of(subject))
    earlier = keep_receipt(path, given.receipt)
    if as_json:
        echo_json(receipt_document(given, path, earlier))
        return
    show([*receipt_rows(given, path), ("earlier receipt", earlier)])


@click.command("pool")
@click.argument("digest", required=False)
@click.option("--out", type=file_path, help="File to write the texts to.")
@authority_options
@json_option
def pool(digest: str | None, out: Path | None, place: Place, as_json: bool) -> None:
    """List what the authority published, or fetch the pool or word list of a DIGEST.

    \b
    Example:
      nsmark client pool
      nsmark client pool DIGEST --out pool.txt
    """
    if (digest is None) != (out is None):
        raise UsageError("DIGEST and --out belong together", "give both, or neither for a list")
    with place.open_client() as client:
        if digest is None or out is None:
            _list_publications(client, as_json)
            return
        ensure_new_file(out)
        _, content = client.publication(digest)
    write_atomic(out, content, overwrite=False)
    _say_written(out, content, as_json)


@click.command("log")
@click.option("--start", type=click.IntRange(0), help="First entry; default: the last ones.")
@click.option(
    "--count", type=click.IntRange(1, 100), default=20, show_default=True, help="How many entries."
)
@authority_options
@json_option
def log(start: int | None, count: int, place: Place, as_json: bool) -> None:
    """Check the log's checkpoint against the last one seen, and list entries.

    \b
    Example:
      nsmark client log --start 0 --count 10
    """
    with place.open_client() as client:
        checkpoint = client.log.checkpoint()
        first = max(0, checkpoint.size - count) if start is None else start
        end = min(checkpoint.size, first + count)
        entries = [entry for page in client.log.entries(first, end) for entry in page]
        trusted = client.trust
    rows = [_logged_row(entry.index, entry.entry, entry.time, trusted) for entry in entries]
    if as_json:
        root = checkpoint.root.hex()
        echo_json({"size": checkpoint.size, "root": root, "items": rows})
        return
    show(
        [("log", checkpoint.origin), ("entries", checkpoint.size), ("root", checkpoint.root.hex())]
    )
    for row in rows:
        words = (row["index"], row["time"], row["kind"], row["entry_id"], row["signer"])
        click.echo("  ".join(one_line(str(word)) for word in words))


@click.command("token")
@click.option("--new", "scopes", metavar="SCOPES", help="Make one: file, dispute or both.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="Its life."
)
@click.option("--label", default="", help="A name for the new token.")
@click.option("--out", type=file_path, help="File for the new token (mode 0600).")
@click.option("--revoke", metavar="ID", help="Make the token of this id worthless.")
@click.option(
    "--revoke-all", is_flag=True, help="Make all your tokens worthless; then register again."
)
@click.option("--fingerprint", metavar="HEX", help="Whose token to ask with, if you keep several.")
@authority_options
@json_option
def token(
    scopes: str | None,
    days: int,
    label: str,
    out: Path | None,
    revoke: str | None,
    revoke_all: bool,
    fingerprint: str | None,
    place: Place,
    as_json: bool,
) -> None:
    """List your API tokens, make another one, or revoke one or all.

    \b
    Example:
      nsmark client token
      nsmark client token --new file --days 7 --out build-server.token
      nsmark client token --revoke 9f86d081884c7d65
    """
    asked = (scopes is not None, revoke is not None, revoke_all)
    if (scopes is None) != (out is None) or sum(asked) > 1:
        raise UsageError("--new needs --out, and excludes --revoke", "do one thing at a time")
    with place.open_client(fingerprint) as client:
        if scopes is not None and out is not None:
            _make_token(client, scopes, days, label, out, as_json)
            return
        if revoke_all:
            count = client.revoke_all_tokens()
            if as_json:
                echo_json({"revoked": count})
            else:
                click.echo(f"revoked {count}; register again for a new one")
            return
        if revoke is not None:
            client.revoke_token(revoke)
            if as_json:
                echo_json({"token_id": revoke, "revoked": True})
            else:
                click.echo(f"revoked {one_line(revoke)}")
            return
        rows = client.tokens()
    if as_json:
        echo_json({"items": rows})
        return
    for row in rows:
        state = "revoked" if row.get("revoked") else f"until {row.get('expires')}"
        scope = ",".join(map(str, row.get("scopes") or ()))
        click.echo(one_line(f"{row.get('token_id')}  {scope}  {state}  {row.get('label') or ''}"))


def _make_token(
    client: AuthorityClient, scopes: str, days: int, label: str, out: Path, as_json: bool
) -> None:
    wanted = [scope.strip() for scope in scopes.split(",")]
    if not set(wanted) <= set(_SCOPES):
        raise UsageError(f"there are no scopes {scopes[:40]!r}", f"known: {', '.join(_SCOPES)}")
    ensure_new_file(out)
    made = client.new_token(wanted, days, label)
    write_atomic(out, f"{made.pop('token')}\n".encode("ascii"), 0o600, overwrite=False)
    if as_json:
        echo_json(made | {"token_file": str(out)})
        return
    show([("token", out), ("id", made.get("token_id")), ("until", made.get("expires"))])


def _list_publications(client: AuthorityClient, as_json: bool) -> None:
    rows = client.publications()
    if as_json:
        echo_json({"items": rows})
        return
    for row in rows:
        words = ("digest", "what", "content_bytes", "name")
        click.echo("  ".join(one_line(str(row.get(word, ""))) for word in words))
    if not rows:
        click.echo("nothing was published")


def _logged_row(index: int, entry: bytes, time: str, trusted: Any) -> dict[str, Any]:
    from nsmark_authority.statements import open_statement

    opened = open_statement(entry, authority=trusted.name, authority_key=trusted.public_key)
    return {
        "index": index,
        "time": time,
        "kind": opened.statement.kind,
        "entry_id": opened.entry_id,
        "signer": opened.signer.fingerprint,
        "statement": statement_document(opened.statement),
    }


def _names_of(client: AuthorityClient, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each filing the name under which its key is registered; null if not asked.

    Every owner costs a question, so of very long lists only the first owners are compared.
    """
    names: dict[str, str] = {}
    for fingerprint in dict.fromkeys(str(row.get("fingerprint")) for row in rows):
        if len(names) == _MAX_COMPARED:
            click.echo(
                f"the claims of the first {_MAX_COMPARED} owners were compared with their "
                "registered names, the others were not: search for less",
                err=True,
            )
            break
        names[fingerprint] = str(client.owner(fingerprint).get("owner"))
    return [{"registered_owner": names.get(str(row.get("fingerprint")))} for row in rows]


def _is_two_named(row: dict[str, Any]) -> bool:
    """Return whether a filing's claim names another owner than its key is registered under."""
    return row.get("registered_owner") not in (None, row.get("owner"))


def _both_names(row: dict[str, Any]) -> str:
    claimed = str(row.get("owner", ""))
    return f"{claimed} (registered as {row['registered_owner']})" if _is_two_named(row) else claimed


def _show_subject(kind: str, found: dict[str, Any], as_json: bool) -> None:
    from nsmark_authority.client.reader import progress_of

    if as_json:
        echo_json({"kind": kind} | found)
        return
    share, message = progress_of(found)
    is_over = found.get("state") not in ("waiting", "open")
    show(
        [
            (kind, found.get("entry_id")),
            ("owner", _both_names(found) if _is_two_named(found) else None),
            ("time", found.get("time")),
            ("state", found.get("state")),
            *_reasons(found),
            ("outcome", found.get("outcome")),
            ("answers until", None if is_over else found.get("answer_until")),
            ("work", None if is_over or not found.get("job") else f"{share:.0%}  {message}"),
            ("handed over", found.get("has_content")),
            ("key", found.get("key_id")),
        ]
    )


def _reasons(row: dict[str, Any]) -> Iterator[tuple[str, object]]:
    decision = row.get("decision")
    reasons = decision.get("reasons") if isinstance(decision, dict) else None
    for reason in reasons if isinstance(reasons, list) else []:
        yield "reason", reason


def _exit_of(outcome: str) -> int:
    return {"upheld": 0, "could_not_measure": 3}.get(outcome, 1)


def _say_written(out: Path, content: bytes, as_json: bool) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    if as_json:
        echo_json({"file": str(out), "bytes": len(content), "sha256": sha256})
    else:
        show([("written", out), ("bytes", f"{len(content):,}"), ("sha256", sha256)])


@contextmanager
def _share_bar(quiet: bool) -> Iterator[Callable[[float, str], None]]:
    with progress_bar("waiting %", quiet) as update:
        yield lambda share, text: update(int(share * _PER_CENT), _PER_CENT, one_line(text))
