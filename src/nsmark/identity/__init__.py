"""Who makes the claim: signing keys, claims and their signatures."""

from nsmark.identity.claim import OwnershipClaim, parse_json_object
from nsmark.identity.keys import Identity
from nsmark.identity.public_key import PublicKey
from nsmark.identity.signing import SignedClaim, read_claim_file, write_claim_file

__all__ = [
    "Identity",
    "OwnershipClaim",
    "PublicKey",
    "SignedClaim",
    "parse_json_object",
    "read_claim_file",
    "write_claim_file",
]
