"""Base64 with one spelling per value, so that nothing signed can be written in two ways."""

from __future__ import annotations

import base64
import binascii

from nsmark_authority.errors import TransparencyError

_STANDARD_FROM_URL_SAFE = str.maketrans("-_", "+/")


def encode_base64(octets: bytes) -> str:
    """Return the padded standard form (RFC 4648 §4)."""
    return base64.b64encode(octets).decode("ascii")


def decode_base64(text: str, what: str, *, allow_url_safe: bool = False) -> bytes:
    """Return the bytes of a padded base64 text without spaces or stray bits.

    Args:
        text: What to decode.
        what: Its name in the error.
        allow_url_safe: Whether ``-`` and ``_`` may stand for ``+`` and ``/`` throughout.

    Raises:
        TransparencyError: Not such a text.
    """
    standard = text
    # A text that mixes the two alphabets stays as it is, and fails below.
    if allow_url_safe and "+" not in text and "/" not in text:
        standard = text.translate(_STANDARD_FROM_URL_SAFE)
    try:
        octets = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError):
        octets = None
    # Unused bits of the last digit would give one value several spellings.
    if octets is None or encode_base64(octets) != standard:
        raise TransparencyError(f"the {what} is not in plain base64", "fetch it again, unaltered")
    return octets
