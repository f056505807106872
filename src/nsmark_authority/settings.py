"""How an authority is set up."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from nsmark.errors import ConfigError

DEFAULT_NAME = "nsmark.local"
DATABASE_FILE = "authority.db"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}")
_DAY = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySettings:
    """Everything that is chosen when an authority is started."""

    folder: Path
    """Signing key, data key, time-stamp key, sealed content, and the database unless elsewhere."""

    name: str | None = None
    """The log's origin, by custom a host name; by default what the folder says."""

    database_url: str | None = field(default=None, repr=False)  # it may hold a password
    """``postgresql://USER:PASSWORD@HOST/NAME``; by default SQLite in the folder."""

    timestamp_url: str | None = None
    """A time-stamp authority (RFC 3161); by default the local one of the folder."""

    timestamp_roots: Path | None = None
    """PEM file with the roots to check its tokens against."""

    max_key_bytes: int = 256 << 20
    max_model_bytes: int = 8 << 30
    """All files of one model folder together."""

    max_recorded_bytes: int = 1 << 30
    max_publication_bytes: int = 256 << 20

    max_owner_bytes: int = 64 << 30
    """All that one owner may hand over."""

    min_free_bytes: int = 256 << 20
    """What is left of the disk: nothing is taken that would leave less."""

    max_open_disputes: int = 16
    """Of one owner at a time."""

    evidence_roots: Path | None = None
    """PEM file with the roots of time-stamp authorities whose tokens date what is deposited."""

    answer_seconds: int = 14 * _DAY
    """How long a respondent may answer before a dispute is measured."""

    nonce_seconds: int = 900
    """How long a challenge may be answered."""

    max_open_nonces: int = 100_000
    """More are not given out at one time."""

    token_seconds: int = 365 * _DAY
    """Life of an API token."""

    job_stale_seconds: int = 120
    """A job whose worker was not heard of for so long is queued again."""

    max_job_attempts: int = 5
    """After so many, a job has failed."""

    control_models: tuple[Path, ...] = ()
    """Folders of innocent models that keys are measured on before they are admitted."""

    allowed_suspects: tuple[str, ...] = ()
    """Private addresses that may be asked all the same, as ``host:port``."""

    queue_url: str | None = field(default=None, repr=False)
    """``redis://…`` for a queue shared by machines; by default SQLite in the folder."""

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise ConfigError(
                "name", self.name[:80], "must be a host name or URL without scheme, no spaces"
            )
        for name in ("max_key_bytes", "max_model_bytes", "max_recorded_bytes", "token_seconds"):
            _require(name, getattr(self, name), 1)
        for name in ("max_publication_bytes", "nonce_seconds", "max_open_nonces"):
            _require(name, getattr(self, name), 1)
        for name in ("job_stale_seconds", "max_job_attempts"):
            _require(name, getattr(self, name), 1)
        for name in ("max_owner_bytes", "max_open_disputes"):
            _require(name, getattr(self, name), 1)
        for name in ("answer_seconds", "min_free_bytes"):
            _require(name, getattr(self, name), 0)
        if (self.timestamp_url is None) != (self.timestamp_roots is None):
            raise ConfigError(
                "timestamp_url",
                self.timestamp_url,
                "needs timestamp_roots beside it, and the reverse",
            )

    @property
    def database(self) -> str:
        """Where the database is, as SQLAlchemy wants to hear it."""
        if self.database_url is None:
            return f"sqlite:///{(self.folder / DATABASE_FILE).absolute()}"
        return self.database_url


def _require(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(name, value, f"must be at least {least}")
