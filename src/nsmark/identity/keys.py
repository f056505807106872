"""Create, load and save Ed25519 signing keys."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nsmark.errors import ConfigError, IdentityError
from nsmark.files import ensure_new_file, read_bounded, write_atomic
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.public_key import MAX_PEM_BYTES, PublicKey
from nsmark.identity.signing import SignedClaim

_ENCRYPTED = b"ENCRYPTED PRIVATE KEY"
_MAX_PASSPHRASE_BYTES = 1023
"""What OpenSSL takes."""


class Identity:
    """An owner's signing key.

    Example:
        >>> identity = Identity.generate()
        >>> identity.public_key.verifies(identity.sign_bytes(b"mine"), b"mine")
        True
    """

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        self.public_key = PublicKey(private_key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> Identity:
        """Make a new key from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path, passphrase: bytes | None = None) -> Identity:
        """Read a PKCS#8 PEM file.

        Raises:
            IdentityError: Damaged, of another kind, or the passphrase is missing or wrong.
        """
        pem = read_bounded(path, MAX_PEM_BYTES, "identity")
        try:
            key = serialization.load_pem_private_key(pem, passphrase)
        except TypeError as error:
            if _ENCRYPTED in pem:  # an empty passphrase is as good as none
                raise IdentityError(
                    f"the identity {path} is encrypted",
                    "give its passphrase (--passphrase-file, or NSMARK_PASSPHRASE)",
                ) from error
            raise IdentityError(
                f"the identity {path} is not encrypted", "leave the passphrase out"
            ) from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise IdentityError(
                f"{path} is no identity, is damaged, or the passphrase is wrong",
                "expected the .pem file of `nsmark identity new`",
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise IdentityError(f"{path} is not Ed25519", "make one with `nsmark identity new`")
        return cls(key)

    @staticmethod
    def is_encrypted(path: Path) -> bool:
        """Return whether a PEM file asks for a passphrase."""
        return _ENCRYPTED in read_bounded(path, MAX_PEM_BYTES, "identity")

    def to_pem(self, passphrase: bytes | None = None) -> bytes:
        """Return the PKCS#8 PEM block, encrypted if a passphrase is given."""
        if passphrase == b"":
            raise IdentityError("the passphrase is empty", "give one, or none at all")
        if passphrase is not None and len(passphrase) > _MAX_PASSPHRASE_BYTES:
            raise IdentityError(
                f"the passphrase has {len(passphrase)} bytes",
                f"give at most {_MAX_PASSPHRASE_BYTES}",
            )
        encryption: serialization.KeySerializationEncryption = (
            serialization.NoEncryption()
            if passphrase is None
            else serialization.BestAvailableEncryption(passphrase)
        )
        return self._private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )

    def save(self, prefix: Path, passphrase: bytes | None = None) -> tuple[Path, Path]:
        """Write ``PREFIX.pem`` (mode 0600) and ``PREFIX.pub``; refuses to replace either."""
        if not prefix.name:
            raise ConfigError("prefix", str(prefix), "must end in a name, not in a folder")
        private = prefix.with_name(prefix.name + ".pem")
        public = prefix.with_name(prefix.name + ".pub")
        for path in (private, public):
            ensure_new_file(path)
        write_atomic(private, self.to_pem(passphrase), 0o600, overwrite=False)
        write_atomic(public, self.public_key.to_pem().encode("ascii"), overwrite=False)
        return private, public

    def sign_bytes(self, message: bytes) -> bytes:
        """Return the 64-byte signature; the same message always gives the same one."""
        return self._private_key.sign(message)

    def sign(self, claim: OwnershipClaim) -> SignedClaim:
        """Sign a claim (paper: Sign(m))."""
        return SignedClaim(
            claim=claim,
            public_key=self.public_key,
            signature=self.sign_bytes(claim.canonical_bytes()),
        )
