"""Options that all commands of ``nsmark client`` share, and what they stand for."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nsmark.cli.output import one_line
from nsmark.errors import UsageError

if TYPE_CHECKING:
    from nsmark.identity import Identity
    from nsmark_authority.client import AuthorityClient, GivenReceipt, TrustedAuthority, TrustStore
    from nsmark_authority.client.tokens import TokenStore
    from nsmark_authority.statements import Statement

F = TypeVar("F", bound=Callable[..., Any])

file_path = click.Path(dir_okay=False, path_type=Path)
any_path = click.Path(path_type=Path)

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OPTIONS = (
    click.option(
        "--url",
        envvar="NSMARK_AUTHORITY_URL",
        help="The authority (else NSMARK_AUTHORITY_URL, else the only trusted one).",
    ),
    click.option(
        "--trust-file",
        type=file_path,
        help="Trusted authorities; default: nsmark/trust.json in your configuration folder.",
    ),
    click.option(
        "--token-file",
        type=file_path,
        help="File with the token alone (else NSMARK_AUTHORITY_TOKEN, else what register kept).",
    ),
    click.option(
        "--timeout",
        "timeout_seconds",
        type=float,
        default=60.0,
        show_default=True,
        help="Seconds an answer may take.",
    ),
    click.option(
        "--plain-http",
        is_flag=True,
        help="Send tokens and content over http, too, where others may read them.",
    ),
)
_NAMES = ("url", "trust_file", "token_file", "timeout_seconds", "plain_http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which authority is meant, and where what is known about it lies."""

    url: str | None
    trust_file: Path | None
    token_file: Path | None
    timeout_seconds: float
    plain_http: bool

    @property
    def store(self) -> TrustStore:
        """The trusted authorities."""
        from nsmark_authority.client.trust import TRUST_FILE, TrustStore, config_folder

        return TrustStore(self.trust_file or config_folder() / TRUST_FILE)

    @property
    def tokens(self) -> TokenStore:
        """The tokens that ``register`` keeps."""
        from nsmark_authority.client.tokens import TOKENS_FILE, TokenStore
        from nsmark_authority.client.trust import config_folder

        return TokenStore(config_folder() / TOKENS_FILE)

    def seen_file(self, trusted: TrustedAuthority) -> Path:
        """Where the newest checkpoint of an authority is kept."""
        folder = self.store.path.parent / "checkpoints"
        return folder / f"{trusted.public_key.fingerprint}.note"

    def open_client(
        self, fingerprint: str | None = None, *, is_checked: bool = True
    ) -> AuthorityClient:
        """Return a client for a trusted authority, with the token of an owner if there is one.

        Args:
            fingerprint: Of the owner whose token is used.
            is_checked: Ask first whether it still is the one that was trusted.

        Raises:
            TransparencyError: It shows another key, other roots or another kind of time.
        """
        from nsmark_authority.client import AuthorityClient

        trusted = self.store.find(self.url)
        client = AuthorityClient(
            trusted.url,
            self._find_token(trusted.url, fingerprint),
            trusted,
            seen=self.seen_file(trusted),
            timeout_seconds=self.timeout_seconds,
            allow_plain_http=self.plain_http,
        )
        if is_checked:
            try:
                client.require_unchanged()
            except BaseException:
                client.close()
                raise
        return client

    def open_stranger(self, url: str) -> AuthorityClient:
        """Return a client for an authority of which nothing is known."""
        from nsmark_authority.client import AuthorityClient

        return AuthorityClient(
            url, timeout_seconds=self.timeout_seconds, allow_plain_http=self.plain_http
        )

    def _find_token(self, url: str, fingerprint: str | None) -> str | None:
        from nsmark_authority.client.tokens import VARIABLE, read_token_file

        if self.token_file is not None and self.token_file.exists():
            return read_token_file(self.token_file)
        if os.environ.get(VARIABLE):
            return os.environ[VARIABLE].strip()
        return self.tokens.find(url, fingerprint)


def authority_options(function: F) -> F:
    """Add the options; the command gets one argument ``place``."""

    @functools.wraps(function)
    def collected(*args: Any, **kwargs: Any) -> Any:
        place = Place(**{name: kwargs.pop(name) for name in _NAMES})
        return function(*args, place=place, **kwargs)

    decorated: Any = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def identity_option(function: F) -> F:
    """Add the option that names the signing key."""
    return click.option(
        "--identity", "identity_file", required=True, type=file_path, help="Your .pem file."
    )(function)


def out_option(function: F) -> F:
    """Add the option that names the receipt to be written."""
    return click.option("--out", type=file_path, help="Write the receipt here.")(function)


def entry_of(text: str) -> str:
    """Return an entry's id: itself, that of a receipt, or that of the receipt beside a file.

    Raises:
        UsageError: None of these.
    """
    from nsmark_authority.receipt import Receipt

    if _DIGEST.fullmatch(text):
        return text
    path = _receipt_file(Path(text))
    if path is None:
        raise UsageError(
            f"{text[:80]!r} is no id, no receipt and no file with a receipt beside it",
            "ids have 64 hex digits",
        )
    return Receipt.load(path).entry_id


def key_of(text: str, passphrase: Callable[[Path], bytes | None]) -> str:
    """Return a key's id: itself, that of a key file, or that of a filing's receipt.

    Raises:
        UsageError: None of these.
    """
    from nsmark.keyfile import read_key
    from nsmark_authority.client.offline import statement_of
    from nsmark_authority.receipt import Receipt
    from nsmark_authority.statements import Filing

    if _DIGEST.fullmatch(text):
        return text
    path = _receipt_file(Path(text))
    if path is not None:
        statement = statement_of(Receipt.load(path))
        if isinstance(statement, Filing):
            return statement.key_id
        raise UsageError(f"{path} is no receipt of a filed key", "give the key's receipt")
    return read_key(text, passphrase(Path(text))).key_id


def _receipt_file(path: Path) -> Path | None:
    from nsmark_authority.client.offline import receipt_path
    from nsmark_authority.receipt import RECEIPT_SUFFIX

    if path.name.endswith(RECEIPT_SUFFIX) and path.exists():
        return path
    beside = receipt_path(path)
    return beside if beside.exists() else None


def show(rows: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns; what a server said cannot move the cursor."""
    shown = [(name, one_line(str(value))) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}  {value}")


def statement_document(statement: Statement) -> dict[str, Any]:
    """Return a statement as JSON says it, with its kind."""
    return {"kind": statement.kind} | statement.to_members()


def receipt_document(given: GivenReceipt, path: Path | None, earlier: Path | None = None) -> Any:
    """Return what commands tell about a receipt that was checked."""
    from nsmark_authority.fields import format_time

    checked = given.checked
    return {
        "entry_id": given.entry_id,
        "index": checked.index,
        "tree_size": checked.tree_size,
        "time": format_time(checked.time),
        "local_time": checked.is_local_time,
        "statement": statement_document(checked.statement),
        "receipt": None if path is None else str(path),
        "earlier_receipt": None if earlier is None else str(earlier),
    }


def receipt_rows(given: GivenReceipt, path: Path | None) -> list[tuple[str, object]]:
    """Return the same for people."""
    from nsmark_authority.fields import format_time

    checked = given.checked
    time = format_time(checked.time)
    if checked.is_local_time:
        time += "  (the authority's own word: local time-stamp key)"
    return [
        ("entry", given.entry_id),
        ("in the log", f"entry {checked.index}, proven up to {checked.tree_size}"),
        ("time", time),
        ("receipt", path),
    ]


def load_signer(identity_file: Path, passphrase_file: Path | None) -> Identity:
    """Load the signing key."""
    from nsmark.cli.identity import load_identity

    return load_identity(identity_file, passphrase_file)
