"""Time stamps for entries, from an independent authority or from the local one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from nsmark_authority.errors import AuthorityError, TransparencyError
from nsmark_authority.fields import format_time
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.remote_authority import fetch_token
from nsmark_authority.transparency.timestamp import check_token
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A token that was checked, and the time it says."""

    token: bytes
    time: str


class Stamper(Protocol):
    """Who gives time stamps."""

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """Against which they can be checked."""

    @property
    def is_local(self) -> bool:
        """Whether the time is only the authority's own."""

    def stamp(self, entry: bytes) -> Stamp:
        """Return a time stamp for an entry's SHA-256, checked."""


@dataclass(frozen=True, slots=True)
class LocalStamper:
    """The authority's own clock."""

    authority: LocalAuthority

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """The one root."""
        return (self.authority.root,)

    @property
    def is_local(self) -> bool:
        """It is."""
        return True

    def stamp(self, entry: bytes) -> Stamp:
        """Return a time stamp."""
        digest = hashlib.sha256(entry).digest()
        request = build_request(digest)
        token = extract_token(self.authority.answer(request.der))
        found = check_token(token, digest, self.roots, nonce=request.nonce)
        return Stamp(token=token, time=format_time(found.time))


@dataclass(frozen=True, slots=True)
class RemoteStamper:
    """An independent time-stamp authority."""

    url: str
    roots: tuple[x509.Certificate, ...]
    timeout_seconds: float = 30.0

    @property
    def is_local(self) -> bool:
        """It is not."""
        return False

    def stamp(self, entry: bytes) -> Stamp:
        """Return a time stamp.

        Raises:
            AuthorityError: It did not answer, or not with a token that holds.
        """
        digest = hashlib.sha256(entry).digest()
        request = build_request(digest)
        try:
            token = fetch_token(self.url, request, timeout_seconds=self.timeout_seconds)
            found = check_token(token, digest, self.roots, nonce=request.nonce)
        except TransparencyError as error:
            # The owner's statement is not at fault: he is told to come again.
            raise AuthorityError(f"no time stamp is to be had: {error}", error.hint) from error
        return Stamp(token=token, time=format_time(found.time))


def roots_pem(roots: tuple[x509.Certificate, ...]) -> str:
    """Return certificates as one PEM text."""
    return "".join(root.public_bytes(Encoding.PEM).decode("ascii") for root in roots)
