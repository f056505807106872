"""``nsmark client trust``: which authorities are believed, and by which keys."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.client.options import Place, authority_options, show
from nsmark.cli.output import echo_json, json_option
from nsmark.errors import TransparencyError, UsageError

if TYPE_CHECKING:
    from nsmark.authority.client import TrustedAuthority, TrustStore

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@click.command("trust")
@click.argument("address", metavar="[URL]", required=False)
@click.option(
    "--fingerprint",
    metavar="HEX",
    help="Of the authority's key, as you got it elsewhere: nothing is asked.",
)
@click.option("--yes", is_flag=True, help="Trust what is shown without comparing it.")
@click.option("--forget", is_flag=True, help="Trust it no longer.")
@authority_options
@json_option
def trust(
    address: str | None,
    fingerprint: str | None,
    yes: bool,
    forget: bool,
    place: Place,
    as_json: bool,
) -> None:
    """Trust the authority at URL, after its fingerprint was compared; without URL, list them.

    Get the fingerprint from somewhere else: a printed page, a phone call, another network.

    \b
    Example:
      nsmark client trust https://authority.example
      nsmark client trust https://authority.example --forget
    """
    store = place.store
    if address is None:
        _list(store, as_json)
        return
    if forget:
        gone = store.forget(address)
        place.seen_file(gone).unlink(missing_ok=True)
        _report(gone, "no longer trusted", as_json)
        return
    with place.open_stranger(address) as client:
        found = client.describe()
    store.refuse_change(found)
    known = next((one for one in store.authorities() if one.url == found.url), None)
    if known is not None and set(found.roots) <= set(known.roots):
        _report(known, "trusted already, nothing has changed", as_json)
        return
    if not as_json:
        show(_rows(found))
    _compare(found, fingerprint, yes, is_new=known is None)
    if known is not None:
        # Receipts given under earlier roots stay good.
        found = _with_roots(found, known)
    store.add(found)
    _report(found, "trusted from now on", as_json, with_rows=False)


def _compare(found: TrustedAuthority, fingerprint: str | None, yes: bool, *, is_new: bool) -> None:
    actual = found.public_key.fingerprint
    if fingerprint is not None:
        wanted = "".join(fingerprint.lower().replace(":", " ").split())
        if not _FINGERPRINT.fullmatch(wanted):
            raise UsageError("a fingerprint has 64 hex digits", "give all of it")
        if wanted != actual:
            raise TransparencyError(
                f"THE FINGERPRINTS DIFFER: the authority at {found.url} shows {actual}",
                "somebody may stand in between; nothing was trusted",
            )
    elif not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "the fingerprint was not compared with one from elsewhere",
                "give --fingerprint HEX, or --yes to trust it unseen",
            )
        what = "fingerprint" if is_new else "new time-stamp roots"
        question = f"Is this the {what} that the authority told you by another way?"
        click.confirm(question, abort=True, err=True)


def _with_roots(found: TrustedAuthority, known: TrustedAuthority) -> TrustedAuthority:
    from dataclasses import replace

    return replace(found, roots=tuple(dict.fromkeys((*known.roots, *found.roots))))


def _list(store: TrustStore, as_json: bool) -> None:
    known = store.authorities()
    if as_json:
        echo_json({"trust_file": str(store.path), "authorities": [_document(o) for o in known]})
        return
    if not known:
        click.echo("no authority is trusted yet")
    for one in known:
        show(_rows(one))


def _rows(one: TrustedAuthority) -> list[tuple[str, object]]:
    time = "its own word: a local time-stamp key" if one.local_time else "independent time stamps"
    return [
        ("authority", f"{one.name}  at {one.url}"),
        ("fingerprint", one.public_key.fingerprint),
        *(("time-stamp root", fingerprint) for fingerprint in one.root_fingerprints()),
        ("time", time),
    ]


def _document(one: TrustedAuthority) -> dict[str, Any]:
    return {
        "url": one.url,
        "name": one.name,
        "fingerprint": one.public_key.fingerprint,
        "public_key": one.public_key.to_pem(),
        "roots": one.root_fingerprints(),
        "local_time": one.local_time,
        "since": one.since,
    }


def _report(one: TrustedAuthority, outcome: str, as_json: bool, *, with_rows: bool = True) -> None:
    if as_json:
        echo_json(_document(one) | {"outcome": outcome})
        return
    if with_rows:
        show(_rows(one))
    click.echo(outcome)
