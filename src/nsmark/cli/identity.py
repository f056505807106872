"""``nsmark identity``: signing keys and claims."""

from __future__ import annotations

from pathlib import Path

import click

from nsmark.cli.output import echo_json, find_passphrase, identity_passphrase_option, json_option
from nsmark.errors import ClaimError, UsageError
from nsmark.identity import (
    Identity,
    OwnershipClaim,
    PublicKey,
    SignedClaim,
    read_claim_file,
    write_claim_file,
)

_file = click.Path(dir_okay=False, path_type=Path)


def load_identity(path: Path, passphrase_file: Path | None) -> Identity:
    """Load a private key, asking for its passphrase only if it has one."""
    if not Identity.is_encrypted(path):
        return Identity.load(path)
    return Identity.load(path, find_passphrase(passphrase_file, "NSMARK_PASSPHRASE", "identity"))


@click.group("identity", no_args_is_help=False)
def command() -> None:
    """Make and show signing keys; sign and check claims.

    \b
    Example:
      nsmark identity new --out alice
      nsmark identity sign --identity alice.pem --owner "Alice" --message "mine" --out claim.json
      nsmark identity check claim.json
    """


@command.command("new")
@click.option(
    "--out",
    "prefix",
    required=True,
    type=click.Path(path_type=Path),
    help="Writes PREFIX.pem (private, mode 0600) and PREFIX.pub.",
)
@click.option("--encrypt", is_flag=True, help="Protect the private key with a passphrase.")
@identity_passphrase_option
@json_option
def new(prefix: Path, encrypt: bool, passphrase_file: Path | None, as_json: bool) -> None:
    """Make a signing key.

    \b
    Example:
      nsmark identity new --out alice
      nsmark identity new --out alice --encrypt
    """
    passphrase = None
    if encrypt or passphrase_file is not None:
        passphrase = find_passphrase(
            passphrase_file, "NSMARK_PASSPHRASE", "new identity", confirm=True
        )
    identity = Identity.generate()
    private, public = identity.save(prefix, passphrase)
    if as_json:
        echo_json(
            {
                "private_key": str(private),
                "public_key": str(public),
                "fingerprint": identity.public_key.fingerprint,
                "encrypted": passphrase is not None,
            }
        )
    else:
        click.echo(f"private key  {private}  (keep it safe: it signs and seals in your name)")
        click.echo(f"public key   {public}")
        click.echo(f"fingerprint  {identity.public_key.fingerprint}")


@command.command("show")
@click.argument("path", type=_file)
@identity_passphrase_option
@json_option
def show(path: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Show the public half of PATH (a .pem or .pub file).

    \b
    Example:
      nsmark identity show alice.pub
    """
    if path.suffix == ".pub":
        public_key = PublicKey.load(path)
    else:
        public_key = load_identity(path, passphrase_file).public_key
    if as_json:
        echo_json({"public_key": public_key.to_pem(), "fingerprint": public_key.fingerprint})
    else:
        click.echo(public_key.to_pem(), nl=False)
        click.echo(f"fingerprint  {public_key.fingerprint}")


def signed_claim(
    identity: Identity,
    owner: str | None,
    message: str | None,
    claim_file: Path | None,
    created: str | None = None,
) -> SignedClaim:
    """Sign owner and message, or take (and if need be sign) the claim of a file."""
    if claim_file is None:
        if owner is None or message is None:
            raise UsageError("no claim given", "give --owner and --message, or --claim FILE")
        return identity.sign(OwnershipClaim.make(owner, message, created))
    if owner is not None or message is not None or created is not None:
        raise UsageError(
            "--claim excludes --owner, --message and --created", "give one or the other"
        )
    found = read_claim_file(claim_file)
    if isinstance(found, OwnershipClaim):
        return identity.sign(found)
    if found.public_key != identity.public_key:
        raise ClaimError(
            f"{claim_file} was signed by another identity", "give the identity that signed it"
        )
    return found


@command.command("sign")
@click.option("--identity", "identity_file", required=True, type=_file, help="Your .pem file.")
@click.option("--owner", help="Who claims.")
@click.option("--message", help="What is claimed, in words.")
@click.option("--created", help="Time of the claim, YYYY-MM-DDTHH:MM:SSZ; default: now.")
@click.option("--claim", "claim_file", type=_file, help="Sign this claim object instead.")
@click.option("--out", required=True, type=_file, help="Claim file to write (mode 0600).")
@identity_passphrase_option
@json_option
def sign(
    identity_file: Path,
    owner: str | None,
    message: str | None,
    created: str | None,
    claim_file: Path | None,
    out: Path,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Sign a claim of ownership.

    The claim file holds the signature, from which trigger and texts of the watermark follow:
    keep it secret until a dispute.

    \b
    Example:
      nsmark identity sign --identity alice.pem --owner "Alice" --message "mine" --out claim.json
    """
    identity = load_identity(identity_file, passphrase_file)
    signed = signed_claim(identity, owner, message, claim_file, created)
    write_claim_file(signed, out)
    if as_json:
        echo_json({"claim_file": str(out), **signed.public_form()})
    else:
        click.echo(f"claim file        {out}  (secret until a dispute)")
        click.echo(f"signature SHA-256 {signed.signature_digest}  (may be published)")


@command.command("check")
@click.argument("claim_file", type=_file)
@click.option("--public", "public_file", type=_file, help="Require this .pub file's key.")
@json_option
def check(claim_file: Path, public_file: Path | None, as_json: bool) -> None:
    """Check that CLAIM_FILE is signed by the key it names (and by --public, if given).

    \b
    Example:
      nsmark identity check claim.json --public alice.pub
    """
    found = read_claim_file(claim_file)
    if isinstance(found, OwnershipClaim):
        raise ClaimError(f"{claim_file} is not signed", "sign it with `nsmark identity sign`")
    if public_file is not None and PublicKey.load(public_file) != found.public_key:
        raise ClaimError(
            f"{claim_file} was signed by another key than {public_file}", "get the right key"
        )
    if as_json:
        echo_json(
            {"valid": True, "fingerprint": found.public_key.fingerprint, **found.public_form()}
        )
    else:
        claim = found.claim
        click.echo(f"valid: {claim.owner!r} claimed {claim.message!r} at {claim.created}")
        click.echo(f"signed by {found.public_key.fingerprint}")
