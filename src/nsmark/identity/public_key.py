"""Ed25519 public keys, checked once at the door."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nsmark.errors import IdentityError
from nsmark.files import read_bounded
from nsmark.identity.points import is_sound_public_key

MAX_PEM_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key that has passed the small-order and encoding checks."""

    raw: bytes
    """The 32-byte encoding."""

    def __post_init__(self) -> None:
        if not is_sound_public_key(self.raw):
            raise IdentityError(
                "the public key is of small order or not in canonical form",
                "such a key fits signatures to any claim; make one with `nsmark identity new`",
            )

    @classmethod
    def from_pem(cls, pem: str | bytes) -> PublicKey:
        """Read an SPKI PEM block."""
        try:
            octets = pem.encode("utf-8") if isinstance(pem, str) else pem
            key = serialization.load_pem_public_key(octets)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise IdentityError(
                "this is no public key in PEM form", "expected the .pub file of an identity"
            ) from error
        if not isinstance(key, Ed25519PublicKey):
            raise IdentityError("the public key is not Ed25519", "make one: `nsmark identity new`")
        return cls(key.public_bytes_raw())

    @classmethod
    def load(cls, path: Path) -> PublicKey:
        """Read a ``.pub`` file."""
        return cls.from_pem(read_bounded(path, MAX_PEM_BYTES, "public key"))

    def to_pem(self) -> str:
        """Return the SPKI PEM block."""
        return (
            Ed25519PublicKey.from_public_bytes(self.raw)
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            .decode("ascii")
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the 32-byte key, for people to compare."""
        return hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the signature over the message is this key's."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True
