"""``nsmark client check-receipt``: what a receipt proves, without asking anybody."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.output import (
    echo_json,
    find_passphrase,
    json_option,
    key_passphrase_option,
    one_line,
)
from nsmark.errors import UsageError
from nsmark.files import read_bounded
from nsmark_authority.cli.client.options import any_path, file_path, statement_document
from nsmark_authority.errors import TransparencyError

if TYPE_CHECKING:
    from cryptography import x509

    from nsmark.identity import PublicKey
    from nsmark_authority.client import TrustStore
    from nsmark_authority.receipt import CheckedReceipt, Receipt

_MAX_PEM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Known:
    """What the checker brings himself; None where he brings nothing."""

    public_key: PublicKey | None
    roots: tuple[x509.Certificate, ...] | None


@click.command("check-receipt")
@click.argument("receipt_file", metavar="FILE", type=file_path)
@click.option("--key", "key_file", type=file_path, help="Key file that it must be for.")
@click.option(
    "--content", type=any_path, help="Model folder or recorded outputs that it must be for."
)
@click.option(
    "--authority",
    "authority_file",
    type=file_path,
    help="The authority's public key (PEM), or a trust file; default: your own trust file.",
)
@click.option(
    "--roots", "roots_file", type=file_path, help="Trusted roots of its time stamps (PEM)."
)
@key_passphrase_option
@json_option
def check_receipt(
    receipt_file: Path,
    key_file: Path | None,
    content: Path | None,
    authority_file: Path | None,
    roots_file: Path | None,
    key_passphrase_file: Path | None,
    as_json: bool,
) -> int:
    """Check a receipt offline, and say what it proves and what it does not.

    Ends with 0 if it holds by a key that did not come with it, else with 1.

    \b
    Example:
      nsmark client check-receipt owner.nsmark.receipt --key owner.nsmark
      nsmark client check-receipt owner.nsmark.receipt --authority authority.pub --roots tsa.pem
    """
    from nsmark_authority.client.offline import explain
    from nsmark_authority.receipt import Receipt
    from nsmark_authority.receipt import check_receipt as check

    if key_file is not None and content is not None:
        raise UsageError("--key and --content exclude each other", "compare one thing at a time")
    receipt = Receipt.load(receipt_file)
    known = _find_known(receipt, authority_file, roots_file)
    compared = key_file or content
    digest = _digest(key_file, content, key_passphrase_file)
    try:
        checked = check(
            receipt, known.public_key or receipt.public_key, known.roots, content_sha256=digest
        )
    except TransparencyError as error:
        return _refuse(receipt, error, as_json)
    is_trusted = known.public_key is not None
    explained = explain(
        checked,
        is_key_trusted=is_trusted,
        content=None if compared is None else str(compared),
    )
    if as_json:
        document = _document(checked) | {
            "trusted_key": is_trusted,
            "proven": list(explained.proven),
            "not_proven": list(explained.unproven),
        }
        echo_json(document)
    else:
        click.echo("Proven:" if is_trusted else "Proven, if the key in it is the authority's:")
        for sentence in explained.proven:
            click.echo(f"  - {one_line(sentence)}")
        click.echo("Not proven:")
        for sentence in explained.unproven:
            click.echo(f"  - {one_line(sentence)}")
    return 0 if is_trusted else 1


def _find_known(receipt: Receipt, authority_file: Path | None, roots_file: Path | None) -> _Known:
    from nsmark.identity import PublicKey
    from nsmark_authority.client.trust import TRUST_FILE, TrustStore, config_folder
    from nsmark_authority.transparency.timestamp import read_root_certificates

    roots = None
    if roots_file is not None:
        roots = read_root_certificates(read_bounded(roots_file, _MAX_PEM_BYTES, "root file"))
    if authority_file is None:
        return _from_store(TrustStore(config_folder() / TRUST_FILE), receipt, roots)
    if read_bounded(authority_file, 4 << 20, "authority file").lstrip()[:1] == b"{":
        return _from_store(TrustStore(authority_file), receipt, roots, is_needed=True)
    return _Known(PublicKey.load(authority_file), roots)


def _from_store(
    store: TrustStore,
    receipt: Receipt,
    roots: tuple[x509.Certificate, ...] | None,
    *,
    is_needed: bool = False,
) -> _Known:
    trusted = store.find_by_name(receipt.authority)
    if trusted is None:
        if is_needed:
            raise UsageError(
                f"{store.path} knows no authority {receipt.authority!r}", "give another trust file"
            )
        return _Known(None, roots)
    return _Known(trusted.public_key, roots or trusted.roots)


def _digest(
    key_file: Path | None, content: Path | None, passphrase_file: Path | None
) -> str | None:
    """Return the digest of what the receipt must be for."""
    from nsmark.cli.inspect import needs_passphrase
    from nsmark.keyfile import read_key
    from nsmark.keyfile.codec import encode_key
    from nsmark_authority.client.content import read_content

    if content is not None:
        return read_content(content).sha256
    if key_file is None:
        return None
    passphrase = None
    if needs_passphrase(key_file):
        passphrase = find_passphrase(passphrase_file, "NSMARK_KEY_PASSPHRASE", "key file")
    # An encrypted key was filed as it is inside.
    return hashlib.sha256(encode_key(read_key(key_file, passphrase))).hexdigest()


def _refuse(receipt: Receipt, error: TransparencyError, as_json: bool) -> int:
    if as_json:
        echo_json(
            {
                "valid": False,
                "reason": str(error),
                "hint": error.hint,
                "authority": receipt.authority,
                "entry_id": receipt.entry_id,
            }
        )
    else:
        click.echo("Nothing is proven: the receipt does not hold.")
        click.echo(f"  - {one_line(str(error))}")
        click.echo(f"  - {one_line(error.hint)}")
    return 1


def _document(checked: CheckedReceipt) -> dict[str, Any]:
    from nsmark_authority.fields import format_time

    return {
        "valid": True,
        "authority": checked.statement.authority,
        "entry_id": checked.entry_id,
        "index": checked.index,
        "tree_size": checked.tree_size,
        "time": format_time(checked.time),
        "time_stamp_authority": checked.timestamp.authority,
        "local_time": checked.is_local_time,
        "trusted_roots": checked.are_roots_trusted,
        "statement": statement_document(checked.statement),
    }
