"""Owners whose keys anybody can compute: a run elsewhere marks with the same signatures."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nsmark.identity import Identity

CREATED = "2026-01-31T12:00:00Z"


def make_identity(owner: str) -> Identity:
    """Return the same identity each time."""
    seed = hashlib.sha256(f"nsmark benchmark {owner}".encode()).digest()
    return Identity(Ed25519PrivateKey.from_private_bytes(seed))
