"""API tokens on disk: one file of the user's, readable by nobody else."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from nsmark.errors import FileAccessError, InputError
from nsmark.files import read_bounded, write_json
from nsmark.identity import parse_json_object
from nsmark_authority.fields import Digest, Line, Record, Time

TOKENS_FORMAT: Final = "nsmark/tokens/1"
TOKENS_FILE = "tokens.json"
VARIABLE = "NSMARK_AUTHORITY_TOKEN"
_MAX_TOKENS_BYTES = 1 << 20
_MAX_TOKENS = 1000
_MAX_TOKEN_FILE_BYTES = 4096


class _Entry(Record):
    url: Line
    fingerprint: Digest
    token: Line
    expires: Time


class _Document(Record):
    format: Literal["nsmark/tokens/1"]
    tokens: Annotated[tuple[_Entry, ...], Field(max_length=_MAX_TOKENS, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptToken:
    """A token, whose it is and for which authority."""

    url: str
    fingerprint: str
    """Of the owner's public key."""

    token: str = field(repr=False)
    expires: str


class TokenStore:
    """The tokens of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def tokens(self) -> list[KeptToken]:
        """Return all; none if there is no such file.

        Raises:
            FileAccessError: It cannot be read, or others can read it.
            InputError: It is no file of tokens.
        """
        if not self.path.exists():
            return []
        require_private(self.path)
        content = read_bounded(self.path, _MAX_TOKENS_BYTES, "token file")
        members = parse_json_object(content, "token file")
        if members.get("format") != TOKENS_FORMAT:
            raise InputError(
                f"{self.path} is no token file of this version", f"expected {TOKENS_FORMAT!r}"
            )
        document = _Document.from_members(members, "token file")
        return [KeptToken(**entry.to_members()) for entry in document.tokens]

    def find(self, url: str, fingerprint: str | None) -> str | None:
        """Return the token of an owner for an authority; without a name, the only one."""
        found = [
            kept.token
            for kept in self.tokens()
            if kept.url == url and fingerprint in (None, kept.fingerprint)
        ]
        return found[0] if len(found) == 1 else None

    def keep(self, token: KeptToken) -> None:
        """Remember a token in the place of an earlier one of the same owner.

        Raises:
            FileAccessError: The file cannot be written.
        """
        who = (token.url, token.fingerprint)
        kept = [one for one in self.tokens() if (one.url, one.fingerprint) != who]
        entries = [
            {
                "url": one.url,
                "fingerprint": one.fingerprint,
                "token": one.token,
                "expires": one.expires,
            }
            for one in (*kept, token)
        ]
        write_json(self.path, {"format": TOKENS_FORMAT, "tokens": entries}, 0o600)


def read_token_file(path: Path) -> str:
    """Return the token of a file that holds nothing else.

    Raises:
        FileAccessError: It cannot be read, or others can read it.
        InputError: It is too large or not ASCII.
    """
    require_private(path)
    content = read_bounded(path, _MAX_TOKEN_FILE_BYTES, "token file")
    try:
        return content.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} holds no token", "a token is one line of ASCII") from error


def require_private(path: Path) -> None:
    """Refuse a file of secrets that others can read.

    Raises:
        FileAccessError: They can, or it is not there.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise FileAccessError(
            f"cannot read token file {path}: {error.strerror or error}", "check the path"
        ) from error
    if os.name == "posix" and mode & 0o077:
        raise FileAccessError(f"others can read {path}, which holds tokens", f"chmod 600 {path}")
