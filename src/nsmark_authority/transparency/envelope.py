"""Signed statements in DSSE envelopes (secure-systems-lab DSSE 1.0).

The signature covers the payload's type and its very bytes, so nothing is parsed before it is
checked. Fields that DSSE does not know are ignored on reading, as it demands, and are not kept: a
log must record :meth:`Envelope.to_json`, never the bytes that somebody sent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import rfc8785

from nsmark.errors import ConfigError, InputError
from nsmark.identity import Identity, PublicKey, parse_json_object
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.strict_base64 import decode_base64, encode_base64

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_ENVELOPE_BYTES = 2 * MAX_PAYLOAD_BYTES
"""Base64 adds a third to the payload; the rest is room for signatures."""

_MAX_TYPE_CHARACTERS = 256
_MAX_KEY_ID_CHARACTERS = 1024
_MAX_SIGNATURES = 16
_MAX_SIGNATURE_BYTES = 8 * 1024
_SIGNATURE_BYTES = 64


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed (DSSE: PAE); lengths make it impossible to shift a boundary.

    Example:
        >>> pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class EnvelopeSignature:
    """One signature; it may be of a kind we do not know."""

    signature: bytes

    key_id: str = ""
    """A hint which key it is; not signed, so nothing may depend on it."""

    def __post_init__(self) -> None:
        _require_text(self.key_id, "keyid", _MAX_KEY_ID_CHARACTERS)
        if len(self.signature) > _MAX_SIGNATURE_BYTES:
            raise _malformed("a signature is too long")

    @classmethod
    def from_mapping(cls, document: Any) -> EnvelopeSignature:
        """Read one member of ``signatures``."""
        if not isinstance(document, dict):
            raise _malformed("a signature is not an object")
        key_id = document.get("keyid", "")  # unset and empty are the same
        if not isinstance(key_id, str):
            raise _malformed("keyid is not a string")
        return cls(_decoded(document, "sig"), key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload with signatures that are still to be checked."""

    payload_type: str
    """What the payload is: a media type or a URI."""

    payload: bytes

    signatures: tuple[EnvelopeSignature, ...]

    def __post_init__(self) -> None:
        _require_text(self.payload_type, "payloadType", _MAX_TYPE_CHARACTERS)
        if not self.payload_type:
            raise _malformed("payloadType is empty")
        if len(self.payload) > MAX_PAYLOAD_BYTES:
            raise _malformed(f"its payload is larger than {MAX_PAYLOAD_BYTES:,} bytes")
        if len(self.signatures) > _MAX_SIGNATURES:
            raise _malformed(f"it has more than {_MAX_SIGNATURES} signatures")

    @classmethod
    def parse(cls, document: bytes) -> Envelope:
        """Read a JSON envelope.

        Raises:
            TransparencyError: Not an envelope, or larger than ours are.
        """
        if len(document) > MAX_ENVELOPE_BYTES:
            raise _malformed(f"it is larger than {MAX_ENVELOPE_BYTES:,} bytes")
        try:
            # json would guess UTF-16 from bytes: one content would have several encodings.
            members = parse_json_object(document.decode("utf-8"), "envelope")
        except (InputError, UnicodeDecodeError) as error:
            raise _malformed("it is not a JSON object in UTF-8") from error
        payload_type, signatures = members.get("payloadType"), members.get("signatures")
        if not isinstance(payload_type, str):
            raise _malformed("payloadType is missing or not a string")
        if not isinstance(signatures, list) or len(signatures) > _MAX_SIGNATURES:
            raise _malformed(f"signatures is not a list of at most {_MAX_SIGNATURES}")
        return cls(
            payload_type=payload_type,
            payload=_decoded(members, "payload"),
            signatures=tuple(EnvelopeSignature.from_mapping(member) for member in signatures),
        )

    def to_json(self) -> bytes:
        """Return the one form in which we write it (RFC 8785)."""
        signatures = [
            {"keyid": line.key_id, "sig": encode_base64(line.signature)} for line in self.signatures
        ]
        return rfc8785.dumps(
            {
                "payload": encode_base64(self.payload),
                "payloadType": self.payload_type,
                "signatures": signatures,
            }
        )

    def add_signature(self, identity: Identity) -> Envelope:
        """Return the envelope with one more signature, after those it has."""
        message = pre_authentication_encoding(self.payload_type, self.payload)
        signature = EnvelopeSignature(
            identity.sign_bytes(message), key_id=identity.public_key.fingerprint
        )
        return replace(self, signatures=(*self.signatures, signature))

    def signers(self, keys: Collection[PublicKey]) -> frozenset[PublicKey]:
        """Return those of the keys that signed, whatever the hints say."""
        message = pre_authentication_encoding(self.payload_type, self.payload)
        candidates = [
            line.signature for line in self.signatures if len(line.signature) == _SIGNATURE_BYTES
        ]
        return frozenset(
            key for key in keys if any(key.verifies(octets, message) for octets in candidates)
        )


def sign_envelope(payload_type: str, payload: bytes, identity: Identity) -> Envelope:
    """Put a payload into an envelope and sign it."""
    unsigned = Envelope(payload_type=payload_type, payload=payload, signatures=())
    return unsigned.add_signature(identity)


def open_envelope(
    document: bytes, payload_type: str, keys: Collection[PublicKey], *, threshold: int = 1
) -> bytes:
    """Return the payload of an envelope that enough of the known keys signed.

    Args:
        document: The JSON envelope.
        payload_type: What the payload must be.
        keys: Whose signatures count; others are ignored.
        threshold: How many different keys must have signed.

    Raises:
        ConfigError: The threshold is none that these keys could reach.
        TransparencyError: Malformed, of another type, or signed by too few.
    """
    if not 1 <= threshold <= len(set(keys)):
        raise ConfigError("threshold", threshold, "must lie between 1 and the number of keys")
    envelope = Envelope.parse(document)
    num_signers = len(envelope.signers(keys))
    if num_signers < threshold:
        raise TransparencyError(
            f"the envelope is signed by {num_signers} of the known keys, {threshold} must sign",
            "it was altered, or other keys signed it",
        )
    if envelope.payload_type != payload_type:
        raise TransparencyError(
            f"the envelope holds {envelope.payload_type[:80]!r}, not {payload_type[:80]!r}",
            "this statement serves another purpose; ask for the right one",
        )
    return envelope.payload


def _decoded(members: dict[str, Any], name: str) -> bytes:
    text = members.get(name)
    if not isinstance(text, str):
        raise _malformed(f"{name} is missing or not a string")
    return decode_base64(text, f"{name} of the envelope", allow_url_safe=True)


def _require_text(text: str, name: str, max_characters: int) -> None:
    if len(text) > max_characters:
        raise _malformed(f"{name} has more than {max_characters} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _malformed(f"{name} is not valid Unicode") from error


def _malformed(reason: str) -> TransparencyError:
    return TransparencyError(
        f"this is no valid envelope: {reason}", "fetch it again from where it was issued"
    )
