"""What the web process allows."""

from __future__ import annotations

from dataclasses import dataclass

from nsmark.authority.receipt import MAX_RECEIPT_BYTES
from nsmark.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Limits on callers; one of 0 a minute is none at all."""

    reads_per_minute: int = 1200
    """Of one client address."""

    writes_per_minute: int = 60
    """Of one token."""

    enrolments_per_minute: int = 20
    """Challenges and registrations of one client address, and as many wrong tokens."""

    check_processes: int = 0
    """Processes that check receipts; without any, threads do."""

    max_streams: int = 64
    """Progress streams open at once."""

    stream_seconds: float = 1800.0
    """After which a stream ends, done or not; the client asks again."""

    poll_seconds: float = 1.0
    """Between two looks at a job for a stream."""

    max_document_bytes: int = MAX_RECEIPT_BYTES
    """Of a body that is one JSON document."""

    max_spooled_bytes: int = 32 << 30
    """Of all uploads that are under way together."""

    idle_seconds: float = 20.0
    """A body of which nothing came for so long is given up."""

    grace_seconds: float = 30.0
    """After this, a body must have come at the rate below."""

    min_bytes_per_second: int = 8 << 10

    header_seconds: float = 20.0
    """In which a new connection must have said what it wants."""

    def __post_init__(self) -> None:
        for name in ("reads_per_minute", "writes_per_minute", "enrolments_per_minute"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must be 0 (no limit) or more")
