"""What goes to a time-stamp authority and what comes back (RFC 3161), as bytes."""

from __future__ import annotations

import contextlib
import importlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nsmark.errors import ConfigError, MissingExtraError, NsmarkError
from nsmark_authority.errors import TransparencyError

MAX_TOKEN_BYTES = 64 << 10
"""Real tokens have 1 to 8 kB, most of it certificates."""

ASK_AGAIN = "ask the authority for a new token"
_DIGEST_BYTES = 32
_EXCERPT = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRequest:
    """A question to an authority, and what its answer must repeat."""

    digest: bytes
    """The SHA-256 digest to be stamped."""

    nonce: int
    """A number nobody could guess: an old answer does not fit."""

    der: bytes
    """What is sent."""


def build_request(digest: bytes) -> TimestampRequest:
    """Return a request for a SHA-256 digest, with a fresh nonce, that asks for the certificate.

    Raises:
        ConfigError: Not 32 bytes.
    """
    require_sha256(digest)
    tsp = import_extra("asn1crypto.tsp")
    nonce = secrets.randbits(64)
    imprint = {"hash_algorithm": {"algorithm": "sha256"}, "hashed_message": digest}
    fields = {"version": "v1", "message_imprint": imprint, "nonce": nonce, "cert_req": True}
    return TimestampRequest(digest=digest, nonce=nonce, der=bytes(tsp.TimeStampReq(fields).dump()))


def extract_token(response: bytes) -> bytes:
    """Return the token of an authority's answer; it still has to be checked.

    Raises:
        TransparencyError: The authority refused, or this is no such answer.
    """
    require_size(response, "time-stamp answer")
    core, tsp = import_extra("asn1crypto.core"), import_extra("asn1crypto.tsp")
    with refused_if_malformed("time-stamp answer"):
        # Not tsp.TimeStampResp: that one cannot read a refusal, which has no token.
        parts = list(core.SequenceOf.load(response, spec=core.Any, strict=True))
        status = parts[0].parse(tsp.PKIStatusInfo).native
        if status["status"] in ("granted", "granted_with_mods"):
            return bytes(parts[1].dump())
        reasons = ", ".join(sorted(map(str, status["fail_info"] or ()))) or "no reason"
        said = " ".join(status["status_string"] or ())
    said = "".join(c if c.isprintable() else " " for c in said[:_EXCERPT])
    raise TransparencyError(
        f"the authority gave no token: {status['status']} ({reasons}) {said!r}",
        "see what it says; it may not take SHA-256, or want another URL",
    )


def sort_certificates(token: bytes) -> bytes:
    """Return the token with its certificates in the order of DER.

    OpenSSL leaves them as they come, and rfc3161-client does not read that. No signature covers
    their order.
    """
    # Before anything is read: cms fixes the names it knows at the first use, for good.
    import_extra("asn1crypto.tsp")
    content = import_extra("asn1crypto.cms").ContentInfo.load(token, strict=True)
    certificates = list(content["content"]["certificates"])
    encoded = [certificate.dump() for certificate in certificates]
    if encoded == sorted(encoded):
        return token
    content["content"]["certificates"] = certificates  # a new SET OF, which is written in order
    return bytes(content.dump())


def import_extra(name: str) -> Any:
    """Return a module of the extra ``authority``, which few users of nsmark need.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "authority") from error


def require_sha256(digest: bytes) -> None:
    """Refuse what is no SHA-256 digest."""
    if len(digest) != _DIGEST_BYTES:
        raise ConfigError("digest", digest[:_DIGEST_BYTES].hex(), "must be 32 bytes (SHA-256)")


def require_size(content: bytes, what: str) -> None:
    """Refuse what is empty, or too long to be worth reading."""
    if not 0 < len(content) <= MAX_TOKEN_BYTES:
        raise TransparencyError(
            f"the {what} has {len(content):,} bytes, not 1 to {MAX_TOKEN_BYTES:,}", ASK_AGAIN
        )


@contextlib.contextmanager
def refused_if_malformed(what: str) -> Iterator[None]:
    """Turn whatever the ASN.1 readers raise into our error: the bytes may come from anybody."""
    try:
        yield
    except NsmarkError:
        raise
    except BaseException as error:
        # A panic of the Rust code is no Exception, and has no class one could import.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TransparencyError(f"this is no {what}, or it is damaged", ASK_AGAIN) from error
