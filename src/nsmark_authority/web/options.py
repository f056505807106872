"""What the web process allows."""

from __future__ import annotations

from dataclasses import dataclass

from nsmark.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Limits on callers; one of 0 a minute is none at all."""

    reads_per_minute: int = 1200
    """Of one client address."""

    writes_per_minute: int = 60
    """Of one owner, whatever the number of his tokens."""

    enrolments_per_minute: int = 20
    """Challenges and registrations of one client address, and as many wrong tokens."""

    checks_per_minute: int = 120
    """Receipts checked for one client address: each costs more than a page does."""

    connections_per_address: int = 64
    """Open at once, of one IPv4 address or /48 network of IPv6; 0: any number. Also the requests
    under way at once for an address that a trusted proxy names."""

    uncounted: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """Whose connections are not counted, beside those of trusted proxies: on this machine there may
    be a proxy that nobody told us about."""

    check_processes: int = 0
    """Processes that check receipts; without any, threads do."""

    max_streams: int = 64
    """Progress streams open at once."""

    streams_per_address: int = 8
    """Of them, of one address."""

    stream_seconds: float = 1800.0
    """After which a stream ends, done or not; the client asks again."""

    poll_seconds: float = 1.0
    """Between two looks at a job for a stream."""

    max_document_bytes: int = 64 << 10
    """Of a body whose endpoint does not say that it takes more."""

    max_spooled_bytes: int = 32 << 30
    """Of all uploads that are under way together; one owner gets a quarter of it at most, one
    address half."""

    idle_seconds: float = 20.0
    """A body of which nothing came for so long is given up."""

    rate_seconds: float = 30.0
    """Whenever a body was waited for so long, it must have come at the rate below meanwhile."""

    min_bytes_per_second: int = 8 << 10

    body_seconds: float = 12 * 3600.0
    """In which a body must have come, however fast it came: 8 GiB at 1.6 Mbit/s."""

    header_seconds: float = 20.0
    """In which a new connection must have said what it wants."""

    def __post_init__(self) -> None:
        for name in (
            "reads_per_minute",
            "writes_per_minute",
            "enrolments_per_minute",
            "checks_per_minute",
            "connections_per_address",
        ):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must be 0 (no limit) or more")
