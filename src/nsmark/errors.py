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
    │   └── ModelError           a folder is no model we can open
    ├── EvidenceError            outputs that cannot be measured
    │   ├── EmptyNullSpaceError  fewer texts than dimensions
    │   └── SuspectError         an endpoint did not answer as it should
    ├── EmbeddingError           training did not reach its targets
    └── MissingExtraError        an optional dependency is not installed

The command line maps them to one line ``error:``, one line ``hint:`` and the exit status; library
users catch ``NsmarkError``.
"""

from __future__ import annotations

__all__ = [
    "ClaimError",
    "ConfigError",
    "EmbeddingError",
    "EmptyNullSpaceError",
    "EvidenceError",
    "FileAccessError",
    "IdentityError",
    "InputError",
    "KeyFileError",
    "MissingExtraError",
    "ModelError",
    "NsmarkError",
    "SuspectError",
    "TextPoolError",
    "UsageError",
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


class MissingExtraError(NsmarkError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed",
            self.hint_for(extra),
        )

    @staticmethod
    def hint_for(extra: str) -> str:
        """Return how to install an extra: from nsmark's folder: no index need have it."""
        return f"in the folder of nsmark: pip install -c constraints.txt '.[{extra}]'"
