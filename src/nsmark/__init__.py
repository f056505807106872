"""nsmark: prove that a language model behind an API is yours.

A short tour::

    from nsmark import Identity, OwnershipClaim, embed, read_key, verify

    identity = Identity.generate()
    claim = identity.sign(OwnershipClaim.make("Example Lab", "encoder-small is ours"))
    result = embed("path/to/model", identity, claim, "marked")
    report = verify(read_key("marked/owner.nsmark"), "path/to/suspect")
    report.verdict          # owned, not_shown or could_not_measure

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsmark.api import embed, verify
    from nsmark.errors import NsmarkError
    from nsmark.identity import Identity, OwnershipClaim
    from nsmark.keyfile import WatermarkKey, read_key, write_key
    from nsmark.suspects import open_suspect

__version__ = "0.1.0"

_HOMES = {
    "Identity": "nsmark.identity",
    "NsmarkError": "nsmark.errors",
    "OwnershipClaim": "nsmark.identity",
    "WatermarkKey": "nsmark.keyfile",
    "embed": "nsmark.api",
    "open_suspect": "nsmark.suspects",
    "read_key": "nsmark.keyfile",
    "verify": "nsmark.api",
    "write_key": "nsmark.keyfile",
}

__all__ = [
    "Identity",
    "NsmarkError",
    "OwnershipClaim",
    "WatermarkKey",
    "embed",
    "open_suspect",
    "read_key",
    "verify",
    "write_key",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nsmark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
