"""``nsmark client``: what owners and respondents say to an authority."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.output import (
    echo_json,
    find_passphrase,
    identity_passphrase_option,
    json_option,
    key_passphrase_option,
    one_line,
    progress_bar,
    quiet_option,
)
from nsmark_authority.cli.client.options import (
    Place,
    any_path,
    authority_options,
    entry_of,
    file_path,
    identity_option,
    key_of,
    load_signer,
    out_option,
    receipt_document,
    receipt_rows,
    show,
)

if TYPE_CHECKING:
    from nsmark_authority.client import GivenReceipt

_KILOBYTE = 1 << 10
_SMALL_BYTES = 1 << 20


@click.command("register")
@identity_option
@click.option("--owner", "name", required=True, help="The name to register under.")
@out_option
@authority_options
@identity_passphrase_option
@json_option
def register(
    identity_file: Path,
    name: str,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Register your public key and get a token; whoever lost his token registers again.

    The receipt is written beside the identity, the token into your configuration folder.

    \b
    Example:
      nsmark client register --identity alice.pem --owner "Alice"
    """
    from nsmark.files import ensure_new_file, write_atomic
    from nsmark_authority.client.tokens import KeptToken

    identity = load_signer(identity_file, passphrase_file)
    if place.token_file is not None:
        ensure_new_file(place.token_file)
    with place.open_client() as client:
        done = client.register(identity, name)
    if place.token_file is not None:
        kept = place.token_file
        write_atomic(kept, f"{done.token}\n".encode("ascii"), 0o600, overwrite=False)
    else:
        kept = place.tokens.path
        place.tokens.keep(
            KeptToken(
                url=client.url,
                fingerprint=identity.public_key.fingerprint,
                token=done.token,
                expires=done.expires,
            )
        )
    rows = [("token", f"{kept}  (until {done.expires}; keep it to yourself)")]
    further = {"token_file": str(kept), "token_id": done.token_id, "expires": done.expires}
    _finish(done.given, out or _beside(identity_file), as_json, rows, further)


@click.command("file")
@click.argument("key", type=file_path)
@identity_option
@click.option(
    "--succeeds",
    metavar="KEY",
    help="Earlier key of yours (id, key file or receipt) whose place it takes once revealed.",
)
@click.option("--show-model", is_flag=True, help="Make the marked model's digest public.")
@out_option
@authority_options
@identity_passphrase_option
@key_passphrase_option
@quiet_option
@json_option
def file_key(
    key: Path,
    identity_file: Path,
    succeeds: str | None,
    show_model: bool,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """File the watermark key KEY; its receipt is written beside it as KEY.receipt.

    \b
    Example:
      nsmark client file owner.nsmark --identity alice.pem
      nsmark client file second.nsmark --identity alice.pem --succeeds owner.nsmark
    """
    identity = load_signer(identity_file, passphrase_file)
    unlock = _unlock(key_passphrase_file)
    passphrase = unlock(key)
    earlier = None if succeeds is None else key_of(succeeds, unlock)
    with (
        place.open_client(identity.public_key.fingerprint) as client,
        _uploading(quiet) as on_progress,
    ):
        given = client.file(
            key,
            identity,
            earlier,
            passphrase=passphrase,
            with_model_digest=show_model,
            on_progress=on_progress,
        )
    _finish(given, out or _beside(key), as_json)


@click.command("deposit")
@click.argument("path", type=any_path)
@identity_option
@click.option("--note", default="", help="Words for the public log.")
@click.option("--digest-only", is_flag=True, help="Date its digest; the content stays with you.")
@click.option(
    "--timestamp",
    type=file_path,
    help="An older time stamp (RFC 3161) of its digest, from elsewhere.",
)
@click.option(
    "--timestamp-roots",
    type=file_path,
    metavar="PEM",
    help="Roots to check it against; the authority must believe them, too.",
)
@out_option
@authority_options
@identity_passphrase_option
@quiet_option
@json_option
def deposit(
    path: Path,
    identity_file: Path,
    note: str,
    digest_only: bool,
    timestamp: Path | None,
    timestamp_roots: Path | None,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Date a model folder or a safetensors file of recorded outputs, and hand it over sealed.

    \b
    Example:
      nsmark client deposit marked/model --identity alice.pem
      nsmark client deposit outputs.safetensors --identity bob.pem --note "served since May"
      nsmark client deposit model --identity bob.pem --timestamp old.tsr --timestamp-roots tsa.pem
    """
    if (timestamp is None) != (timestamp_roots is None):
        raise click.UsageError("--timestamp and --timestamp-roots come together")
    identity = load_signer(identity_file, passphrase_file)
    with (
        place.open_client(identity.public_key.fingerprint) as client,
        _uploading(quiet) as on_progress,
    ):
        given = client.deposit(
            path,
            identity,
            note=note,
            hand_over=not digest_only,
            timestamp=timestamp,
            timestamp_roots=timestamp_roots,
            on_progress=on_progress,
        )
    _finish(given, out or _beside(path), as_json)


@click.command("digest")
@click.argument("path", type=any_path)
@json_option
def digest(path: Path, as_json: bool) -> None:
    """Show the SHA-256 under which a deposit of PATH goes: what to have a time stamp of.

    \b
    Example:
      nsmark client digest model
      openssl ts -query -sha256 -cert -digest "$(nsmark client digest model)" -out model.tsq
    """
    from nsmark_authority.client.content import read_content

    found = read_content(path)
    if as_json:
        echo_json(
            {
                "content_sha256": found.sha256,
                "content_bytes": found.num_bytes,
                "what": found.what,
                "model_digest": found.model_digest,
            }
        )
    else:
        click.echo(found.sha256)


@click.command("dispute")
@click.argument("key")
@click.argument("suspect")
@identity_option
@click.option(
    "--released",
    required=True,
    metavar="TIME",
    help="Since when the suspect is public, YYYY-MM-DDTHH:MM:SSZ.",
)
@click.option("--statement", required=True, help="Your claim in your own words.")
@click.option("--yes", is_flag=True, help="Do not ask whether the key may be revealed.")
@out_option
@authority_options
@identity_passphrase_option
@key_passphrase_option
@quiet_option
@json_option
def dispute(
    key: str,
    suspect: str,
    identity_file: Path,
    released: str,
    statement: str,
    yes: bool,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Claim SUSPECT with the admitted key KEY (a key file, its receipt or id).

    SUSPECT is openai:URL#model, completions:URL#model, recorded:FILE or a model folder. The
    dispute reveals the key's trigger: file a successor in advance. You are told whether there is
    one and, on a terminal, asked before anything is sent.

    \b
    Example:
      nsmark client dispute KEY SUSPECT --identity me.pem --released TIME --statement "it is ours"
    """
    identity = load_signer(identity_file, passphrase_file)
    key_id = key_of(key, _unlock(key_passphrase_file))
    fingerprint = identity.public_key.fingerprint
    with place.open_client(fingerprint) as client:
        successors = client.successors(key_id, fingerprint)
        _warn_of_reveal(key_id, successors, is_asked=not yes and sys.stdin.isatty())
        with _uploading(quiet) as on_progress:
            given = client.dispute(
                key_id,
                suspect,
                identity,
                released=released,
                statement=statement,
                on_progress=on_progress,
            )
    ready = _find_ready(successors)
    shown = "none that is admitted: file one (`nsmark client file --succeeds`)"
    if ready is not None:
        shown = f"{ready}  (admitted)"
    further = {
        "key_revealed": True,
        "has_admitted_successor": ready is not None,
        "successor": ready,
    }
    _finish(given, out, as_json, [("successor", shown)], further)


@click.command("answer")
@click.argument("dispute_id", metavar="DISPUTE")
@identity_option
@click.option(
    "--evidence",
    metavar="ENTRY",
    help="Deposit or filing of yours from before the claim: its id or receipt.",
)
@click.option(
    "--released",
    metavar="TIME",
    help="Since when the suspect is public, if the claimant is wrong about it.",
)
@click.option("--statement", required=True, help="Your answer in your own words.")
@out_option
@authority_options
@identity_passphrase_option
@json_option
def answer(
    dispute_id: str,
    identity_file: Path,
    evidence: str | None,
    released: str | None,
    statement: str,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Answer the dispute DISPUTE (id or receipt), perhaps with something that you had earlier.

    \b
    Example:
      nsmark client answer dispute.receipt --identity bob.pem --statement "it is our own"
      nsmark client answer DISPUTE --identity bob.pem --evidence model.receipt --statement "older"
    """
    identity = load_signer(identity_file, passphrase_file)
    proof = None if evidence is None else entry_of(evidence)
    with place.open_client(identity.public_key.fingerprint) as client:
        given = client.answer(
            entry_of(dispute_id),
            identity,
            evidence=proof,
            statement=statement,
            released=released,
        )
    _finish(given, out, as_json)


@click.command("withdraw")
@click.argument("subject")
@identity_option
@click.option("--reason", required=True, help="Words for the public log.")
@out_option
@authority_options
@identity_passphrase_option
@json_option
def withdraw(
    subject: str,
    identity_file: Path,
    reason: str,
    out: Path | None,
    place: Place,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Withdraw a filing or dispute of yours (id, receipt or key file); what was logged stays.

    \b
    Example:
      nsmark client withdraw dispute.receipt --identity alice.pem --reason "settled"
    """
    identity = load_signer(identity_file, passphrase_file)
    with place.open_client(identity.public_key.fingerprint) as client:
        given = client.withdraw(entry_of(subject), identity, reason=reason)
    _finish(given, out, as_json)


def _finish(
    given: GivenReceipt,
    path: Path | None,
    as_json: bool,
    rows: list[tuple[str, str]] | None = None,
    further: dict[str, Any] | None = None,
) -> None:
    """Write the receipt and say what came of it."""
    from nsmark_authority.client.offline import keep_receipt

    earlier = None if path is None else keep_receipt(path, given.receipt)
    if as_json:
        echo_json(receipt_document(given, path, earlier) | (further or {}))
        return
    show([*receipt_rows(given, path), ("earlier receipt", earlier), *(rows or ())])


def _warn_of_reveal(key_id: str, successors: list[dict[str, Any]], *, is_asked: bool) -> None:
    """Say on standard error what a dispute gives away, and ask whether it may be.

    Raises:
        click.Abort: It may not.
    """
    said = [
        f"The dispute reveals the key {key_id[:16]}…: the respondent sees what he is asked, and so "
        "its trigger, and the ruling's report is public. He may filter it from then on.",
    ]
    if _find_ready(successors) is not None:
        said.append("An admitted successor of yours takes its place.")
    elif waiting := [row for row in successors if row.get("state") == "waiting"]:
        said.append(
            f"Its successor {str(waiting[0].get('key_id'))[:16]}… is not admitted yet: better wait "
            "for it."
        )
    else:
        said.append(
            "NO SUCCESSOR IS FILED for it. Better file one first, of a second mark in the same "
            "model: `nsmark client file SECOND --succeeds KEY --identity …`"
        )
    for line in said:
        click.echo(one_line(line), err=True)
    if is_asked:
        click.confirm("Open the dispute?", abort=True, err=True)


def _find_ready(successors: list[dict[str, Any]]) -> str | None:
    """Return the id of a successor that is admitted and still secret."""
    ready = (str(row.get("key_id")) for row in successors if row.get("state") == "admitted")
    return next(ready, None)


def _beside(path: Path) -> Path:
    from nsmark_authority.client.offline import receipt_path

    return receipt_path(path.resolve() if path.name in ("", "..") else path)


def _unlock(passphrase_file: Path | None) -> Callable[[Path], bytes | None]:
    """Return what finds the passphrase of a key file, if it needs one."""
    from nsmark.cli.inspect import needs_passphrase

    def passphrase_of(path: Path) -> bytes | None:
        if not path.is_file() or not needs_passphrase(path):
            return None
        return find_passphrase(passphrase_file, "NSMARK_KEY_PASSPHRASE", "key file")

    return passphrase_of


@contextmanager
def _uploading(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield what shows an upload's progress, in kilobytes; a small one is over at once."""
    with progress_bar("sending kB", quiet) as update:

        def show_sent(sent: int, total: int, name: str) -> None:
            if total > _SMALL_BYTES:
                update(-(-sent // _KILOBYTE), -(-total // _KILOBYTE), name)

        yield show_sent
