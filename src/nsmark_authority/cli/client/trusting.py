"""``nsmark client trust``: which authorities are believed, and by which keys."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.output import echo_json, json_option
from nsmark.errors import UsageError
from nsmark_authority.cli.client.options import Place, authority_options, show
from nsmark_authority.errors import TransparencyError

if TYPE_CHECKING:
    from nsmark_authority.client import TrustedAuthority, TrustStore

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@click.command("trust")
@click.argument("address", metavar="[URL]", required=False)
@click.option(
    "--fingerprint",
    metavar="HEX",
    help="Of the authority's key, as you got it elsewhere: nothing is asked.",
)
@click.option("--yes", is_flag=True, help="Trust what is shown without comparing it.")
@click.option(
    "--renew",
    is_flag=True,
    help="Accept other time-stamp roots, or another kind of time, than you trusted so far.",
)
@click.option("--forget", is_flag=True, help="Trust it no longer.")
@authority_options
@json_option
def trust(
    address: str | None,
    fingerprint: str | None,
    yes: bool,
    renew: bool,
    forget: bool,
    place: Place,
    as_json: bool,
) -> None:
    """Trust the authority at URL, after its fingerprint was compared; without URL, list them.

    Get the fingerprint from somewhere else: a printed page, a phone call, another network. Should
    the authority show other roots for its time stamps later, or only its own time, every command
    refuses it until you accept that with --renew.

    \b
    Example:
      nsmark client trust https://authority.example
      nsmark client trust https://authority.example --renew
      nsmark client trust https://authority.example --forget
    """
    from nsmark_authority.client.trust import require_same_time

    if forget and (renew or address is None):
        raise UsageError("--forget needs a URL, and excludes --renew", "do one thing at a time")
    store = place.store
    if address is None:
        if renew:
            raise UsageError("--renew needs a URL", "say which authority")
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
    if renew:
        _renew(store, found, fingerprint, yes, as_json)
        return
    known = next((one for one in store.authorities() if one.url == found.url), None)
    if known is not None:
        require_same_time(known, roots=found.roots, local_time=found.local_time)
        _report(known, "trusted already, nothing has changed", as_json)
        return
    if not as_json:
        show(_rows(found))
    if not _is_compared(found, fingerprint) and not yes:
        _ask(
            "Is this the fingerprint that the authority told you by another way?",
            "the fingerprint was not compared with one from elsewhere",
            "give --fingerprint HEX, or --yes to trust it unseen",
        )
    store.add(found)
    _report(found, "trusted from now on", as_json, with_rows=False)


def _renew(
    store: TrustStore,
    found: TrustedAuthority,
    fingerprint: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Accept what has changed, after somebody has seen it; the key's fingerprint is not enough."""
    known = store.find(found.url)
    _is_compared(found, fingerprint)
    new = [root for root in found.root_fingerprints() if root not in known.root_fingerprints()]
    if not new and found.local_time == known.local_time:
        _report(known, "trusted already, nothing has changed", as_json)
        return
    if not as_json:
        show(_rows(found))
        show([*(("new root", root) for root in new), ("time so far", _time_of(known))])
    if not yes:
        _ask(
            "Are these the roots and the time that the authority told you by another way?",
            "what has changed was not compared with what the authority says elsewhere",
            "give --yes to accept it unseen",
        )
    _report(store.renew(found), "renewed; earlier roots stay good", as_json, with_rows=False)


def _is_compared(found: TrustedAuthority, fingerprint: str | None) -> bool:
    """Return whether a fingerprint was given; it must be that of the key."""
    if fingerprint is None:
        return False
    actual = found.public_key.fingerprint
    wanted = "".join(fingerprint.lower().replace(":", " ").split())
    if not _FINGERPRINT.fullmatch(wanted):
        raise UsageError("a fingerprint has 64 hex digits", "give all of it")
    if wanted != actual:
        raise TransparencyError(
            f"THE FINGERPRINTS DIFFER: the authority at {found.url} shows {actual}",
            "somebody may stand in between; nothing was trusted",
        )
    return True


def _ask(question: str, problem: str, hint: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(problem, hint)
    click.confirm(question, abort=True, err=True)


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
    return [
        ("authority", f"{one.name}  at {one.url}"),
        ("fingerprint", one.public_key.fingerprint),
        *(("time-stamp root", fingerprint) for fingerprint in one.root_fingerprints()),
        ("time", _time_of(one)),
    ]


def _time_of(one: TrustedAuthority) -> str:
    return "its own word: a local time-stamp key" if one.local_time else "independent time stamps"


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
