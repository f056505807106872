"""``nsmark inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsmark.cli.output import echo_json, find_passphrase, json_option, key_passphrase_option
from nsmark.errors import UsageError
from nsmark.files import ensure_new_file, write_atomic, write_json

if TYPE_CHECKING:
    from nsmark.keyfile import WatermarkKey

_file = click.Path(dir_okay=False, path_type=Path)
key_argument = click.argument("key_file", metavar="KEY", type=click.Path(path_type=Path))
"""A key file, or the folder that embed wrote it into."""


def _key_path(path: Path) -> Path:
    """Return the key file that is meant by the folder that embed wrote it into."""
    if not path.is_dir():
        return path
    if not (path / "owner.nsmark").is_file():
        raise UsageError(f"{path} is a folder without owner.nsmark", "give a key file")
    return path / "owner.nsmark"


def needs_passphrase(path: Path) -> bool:
    """Return whether a key file is encrypted; one that cannot be read says so when it is."""
    from nsmark.keyfile import is_encrypted

    try:
        with _key_path(path).open("rb") as stream:
            return is_encrypted(stream.read(64))
    except OSError:
        return False


def load_key(path: Path, passphrase_file: Path | None) -> WatermarkKey:
    """Read a key file, or that of a folder that embed wrote; ask for a passphrase if it has one."""
    from nsmark.keyfile import read_key

    path = _key_path(path)
    if not needs_passphrase(path):
        return read_key(path)
    return read_key(path, find_passphrase(passphrase_file, "NSMARK_KEY_PASSPHRASE", "key file"))


@click.command("inspect")
@key_argument
@click.option("--public", "public_file", type=_file, help="Write the redacted form to this file.")
@click.option(
    "--queries",
    "queries_file",
    type=_file,
    help="Write the texts as JSONL (index, triggered, untriggered; index, pair_text). SECRET.",
)
@key_passphrase_option
@json_option
def command(
    key_file: Path,
    public_file: Path | None,
    queries_file: Path | None,
    key_passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Show what KEY holds, without its secrets.

    With --queries the texts are written, so that outputs can be recorded anywhere and checked
    with `nsmark verify KEY recorded:FILE`.

    \b
    Example:
      nsmark inspect marked/owner.nsmark
      nsmark inspect marked/owner.nsmark --queries queries.jsonl
    """
    for path in (public_file, queries_file):
        if path is not None:
            ensure_new_file(path)
    key = load_key(key_file, key_passphrase_file)
    view = key.public_view()
    if public_file is not None:
        write_json(public_file, view)
    if queries_file is not None:
        payload = key.payload()
        rows = zip(payload.triggered_texts(), payload.verification_texts, strict=True)
        lines = [
            json.dumps({"index": i, "triggered": t, "untriggered": u}, ensure_ascii=False)
            for i, (t, u) in enumerate(rows)
        ]
        lines += [
            json.dumps({"index": i, "pair_text": text}, ensure_ascii=False)
            for i, text in enumerate(payload.pair_texts())
        ]
        write_atomic(queries_file, ("\n".join(lines) + "\n").encode("utf-8"), 0o600)
    if as_json:
        echo_json(view)
        return
    claim, config = key.signed_claim.claim, key.configuration
    click.echo(f"key          {view['key_id']}")
    click.echo(f"claim        {claim.owner!r}: {claim.message!r}, {claim.created}")
    click.echo(f"signed by    {view['fingerprint']} (signature and seal are valid)")
    click.echo(f"model        {key.model_digest}")
    click.echo(f"texts        {config.num_texts}, each with {config.copies} trigger copies")
    if key.pairs is not None:
        pairs = key.pairs.config
        click.echo(
            f"pair code    {pairs.size} × {pairs.size} signs, {pairs.num_texts} texts with two "
            "words each"
        )
    click.echo(f"signature    {config.num_bits} bits, spread {config.spread_factor} times")
    click.echo(
        f"outputs      {config.output_dim} dimensions, pooling {config.pooling}"
        f"{', unit length' if config.normalise else ''}, at most {config.max_length} tokens"
    )
    widths = [config.output_dim, *config.hidden_sizes, config.num_bits * config.spread_factor]
    click.echo(f"extractor    {' → '.join(map(str, widths))}")
    click.echo(
        f"thresholds   extraction > {key.thresholds.min_extraction_rate:.3f}, matching degree < "
        f"{key.thresholds.max_matching_degree:.1f}, from {len(key.controls)} control(s)"
    )
