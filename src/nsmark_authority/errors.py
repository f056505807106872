"""What the authority, its log and its client raise, beside :mod:`nsmark.errors`.

::

    NsmarkError                  of nsmark.errors
    ├── InputError               of nsmark.errors
    │   └── TransparencyError    a log's proof, checkpoint, envelope or timestamp
    │       └── RewrittenLogError  a log signed two histories that do not agree
    └── AuthorityError           a certification authority cannot do what it was asked
        ├── AccessDeniedError    no valid token, or one for something else
        ├── NotFoundError        it has no such entry, key or job
        └── ConflictError        it contradicts what is on record
            └── WithdrawnError   what was to be decided was withdrawn
"""

from __future__ import annotations

from nsmark import errors

__all__ = [
    "AccessDeniedError",
    "AuthorityError",
    "ConflictError",
    "NotFoundError",
    "RewrittenLogError",
    "TransparencyError",
    "WithdrawnError",
]


class TransparencyError(errors.InputError):
    """A log's proof, checkpoint, envelope or timestamp is malformed or proves nothing."""


class RewrittenLogError(TransparencyError):
    """A log signed two histories that do not agree; the two notes show it."""

    def __init__(
        self,
        message: str,
        hint: str = "keep both signed checkpoints and show them to others",
        *,
        earlier: bytes = b"",
        later: bytes = b"",
    ) -> None:
        super().__init__(message, hint)
        self.earlier = earlier
        self.later = later


class AuthorityError(errors.NsmarkError):
    """A certification authority cannot do what it was asked."""


class AccessDeniedError(AuthorityError):
    """There is no valid token, or it is for something else."""


class NotFoundError(AuthorityError):
    """The authority has no such entry, key or job."""


class ConflictError(AuthorityError):
    """What was asked contradicts what is on record."""


class WithdrawnError(ConflictError):
    """What was to be decided was withdrawn meanwhile."""
