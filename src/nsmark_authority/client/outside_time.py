"""Time stamps (RFC 3161) that somebody got elsewhere, of what he deposits now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nsmark.files import read_bounded
from nsmark_authority.transparency.timestamp import check_token, load_root_certificates
from nsmark_authority.transparency.timestamp_messages import extract_token, import_extra

_MAX_BYTES = 24 << 10
"""In base64, what a deposit may hold."""


@dataclass(frozen=True, slots=True)
class OutsideTime:
    """A token that holds, and the time it says."""

    token: bytes
    time: datetime


def read_outside_time(path: Path, roots: Path, sha256: str) -> OutsideTime:
    """Read a time stamp and check it, before anybody else does.

    Args:
        path: A time-stamp authority's whole answer, or the token in it (DER).
        roots: PEM file with the roots of that authority.
        sha256: What it must be of.

    Raises:
        TransparencyError: It is none, or does not hold.
        FileAccessError: A file cannot be read.
    """
    content = read_bounded(path, _MAX_BYTES, "time stamp")
    trusted = load_root_certificates(roots)
    token = content if _is_token(content) else extract_token(content)
    found = check_token(token, bytes.fromhex(sha256), trusted)
    return OutsideTime(token, found.time)


def _is_token(content: bytes) -> bool:
    """Return whether it begins as a signed message does, with its type, and not with a status."""
    core = import_extra("asn1crypto.core")
    try:
        parts = core.SequenceOf.load(content, spec=core.Any)
        return bool(parts[0].parse().tag == core.ObjectIdentifier.tag)
    except (ValueError, TypeError, IndexError):
        return False
