"""Everything nsmark raises on purpose.

::

    NsmarkError                  has a message and a hint: what was found, what to do next
    ├── UsageError               the call itself is wrong (exit 2)
    │   └── ConfigError          one setting is out of range
    ├── FileAccessError          a path cannot be read or written
    ├── InputError               something from outside is malformed
    │   ├── IdentityError        signing keys
    │   ├── ClaimError           claim or signature
    │   ├── KeyFileError         a key file is damaged, forged or of another format
    │   ├── TextPoolError        corpus, pool or word list
    │   ├── ModelError           a folder is no model we can open
    │   └── TransparencyError    a log's proof, checkpoint, envelope or timestamp
    │       └── RewrittenLogError  a log signed two histories that do not agree
    ├── EvidenceError            outputs that cannot be measured
    │   ├── EmptyNullSpaceError  fewer texts than dimensions
    │   └── SuspectError         an endpoint did not answer as it should
    ├── EmbeddingError           training did not reach its targets
    ├── AuthorityError           a certification authority cannot do what it was asked
    │   ├── AccessDeniedError    no valid token, or one for something else
    │   ├── NotFoundError        it has no such entry, key or job
    │   └── ConflictError        it contradicts what is on record
    │       └── WithdrawnError   what was to be decided was withdrawn
    └── MissingExtraError        an optional dependency is not installed

The command line maps them to one line ``error:``, one line ``hint:`` and the exit status; library
users catch ``NsmarkError``.
"""

from __future__ import annotations

__all__ = [
    "AccessDeniedError",
    "AuthorityError",
    "ClaimError",
    "ConfigError",
    "ConflictError",
    "EmbeddingError",
    "EmptyNullSpaceError",
    "EvidenceError",
    "FileAccessError",
    "IdentityError",
    "InputError",
    "KeyFileError",
    "MissingExtraError",
    "ModelError",
    "NotFoundError",
    "NsmarkError",
    "RewrittenLogError",
    "SuspectError",
    "TextPoolError",
    "TransparencyError",
    "UsageError",
    "WithdrawnError",
]


class NsmarkError(Exception):
    """Root of the tree; ``hint`` says what the reader can do next."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(NsmarkError):
    """The call is wrong, not its input."""

    exit_code = 2


class ConfigError(UsageError):
    """One setting is out of its range."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"{name} = {value!r}: {rule}", f"choose another value for {name}")


class FileAccessError(NsmarkError):
    """A path cannot be read or written, or would overwrite something."""


class InputError(NsmarkError):
    """Something from outside is malformed."""


class IdentityError(InputError):
    """A signing or public key cannot be used."""


class ClaimError(InputError):
    """A claim or its signature is not valid."""


class KeyFileError(InputError):
    """A key file is damaged, forged or of another format."""


class TextPoolError(InputError):
    """A corpus, pool or word list cannot be used."""


class ModelError(InputError):
    """A folder holds no model we can open."""


class TransparencyError(InputError):
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


class EvidenceError(NsmarkError):
    """The outputs cannot be measured."""


class EmptyNullSpaceError(EvidenceError):
    """The outputs have full column rank, so no vector is left to match."""

    def __init__(self, *, num_texts: int, output_dim: int) -> None:
        super().__init__(
            f"outputs of {num_texts} texts in {output_dim} dimensions are linearly independent",
            f"query at least {output_dim + 1} verification texts, "
            f"better {max(1500, 2 * output_dim)}",
        )
        self.needed = output_dim + 1


class SuspectError(EvidenceError):
    """An endpoint did not answer as it should."""


class EmbeddingError(NsmarkError):
    """Training did not reach its targets; nothing was written."""


class AuthorityError(NsmarkError):
    """A certification authority cannot do what it was asked."""


class AccessDeniedError(AuthorityError):
    """There is no valid token, or it is for something else."""


class NotFoundError(AuthorityError):
    """The authority has no such entry, key or job."""


class ConflictError(AuthorityError):
    """What was asked contradicts what is on record."""


class WithdrawnError(ConflictError):
    """What was to be decided was withdrawn meanwhile."""


def extra_hint(extra: str) -> str:
    """Return how to install an extra: from nsmark's own folder, no index need have the package."""
    return f"in the folder of nsmark: pip install -c constraints.txt '.[{extra}]'"


class MissingExtraError(NsmarkError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed",
            extra_hint(extra),
        )
