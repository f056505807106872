"""Signed claims and the claim file.

The claim file holds claim, public key and signature. The signature is the watermark's secret, so
the file is written for its owner's eyes only; ``public_form`` is what may be shown to others.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsmark.errors import ClaimError, InputError
from nsmark.files import read_bounded, write_atomic
from nsmark.identity.claim import OwnershipClaim, parse_json_object
from nsmark.identity.public_key import PublicKey

_MAX_CLAIM_FILE_BYTES = 128 * 1024
_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedClaim:
    """A claim whose signature has been checked: there is no other kind."""

    claim: OwnershipClaim
    public_key: PublicKey
    signature: bytes = field(repr=False)  # a secret: it must not end up in a log

    def __post_init__(self) -> None:
        if len(self.signature) != _SIGNATURE_BYTES or not self.public_key.verifies(
            self.signature, self.claim.canonical_bytes()
        ):
            raise ClaimError(
                "the signature does not fit the claim and the public key",
                "claim, key or signature was altered; sign again with `nsmark identity sign`",
            )

    @property
    def signature_digest(self) -> str:
        """SHA-256 (hex) of the signature: all of it that is public before a dispute."""
        return hashlib.sha256(self.signature).hexdigest()

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of a claim file, secret included."""
        return {
            "claim": self.claim.to_mapping(),
            "public_key": self.public_key.to_pem(),
            "signature": self.signature.hex(),
        }

    def public_form(self) -> dict[str, Any]:
        """Return claim, public key and the digest of the signature."""
        return {
            "claim": self.claim.to_mapping(),
            "public_key": self.public_key.to_pem(),
            "signature_sha256": self.signature_digest,
        }

    @classmethod
    def from_mapping(cls, document: Any) -> SignedClaim:
        """Read and check what :meth:`to_mapping` wrote."""
        if not isinstance(document, dict) or sorted(document) != [
            "claim",
            "public_key",
            "signature",
        ]:
            raise ClaimError(
                "a signed claim has exactly the fields claim, public_key and signature",
                "make one with `nsmark identity sign`",
            )
        pem, signature = document["public_key"], document["signature"]
        if not isinstance(pem, str) or not isinstance(signature, str):
            raise ClaimError("public_key and signature must be strings", "sign the claim again")
        return cls(
            claim=OwnershipClaim.from_mapping(document["claim"]),
            public_key=PublicKey.from_pem(pem),
            signature=parse_hex(signature),
        )


def parse_hex(text: str) -> bytes:
    """Return the bytes of lower-case hex digits: one spelling only, so nothing is malleable."""
    try:
        octets = bytes.fromhex(text)
    except ValueError as error:
        raise ClaimError("the signature is not in hex digits", "sign the claim again") from error
    if octets.hex() != text:
        raise ClaimError("the signature is not in plain lower-case hex", "sign the claim again")
    return octets


def write_claim_file(signed: SignedClaim, path: Path) -> None:
    """Write a claim file, readable by its owner only; an existing file is not replaced."""
    text = json.dumps(signed.to_mapping(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    write_atomic(path, text.encode("utf-8"), 0o600, overwrite=False)


def read_claim_file(path: Path) -> SignedClaim | OwnershipClaim:
    """Read a claim file: a signed claim, or a bare claim object still to be signed."""
    document = parse_json_object(
        read_bounded(path, _MAX_CLAIM_FILE_BYTES, "claim file"), "claim file"
    )
    if "claim" in document:
        return SignedClaim.from_mapping(document)
    try:
        return OwnershipClaim.from_mapping(document)
    except InputError as error:
        raise ClaimError(f"{path} is no claim file: {error}", error.hint) from error
