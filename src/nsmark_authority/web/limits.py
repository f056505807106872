"""How often one may ask: per client address and per owner, counted in memory."""

from __future__ import annotations

import functools
import ipaddress
import math
import time
from typing import Literal

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send

from nsmark_authority.web.crowds import Crowd, Uncounted
from nsmark_authority.web.errors import WebError, problem
from nsmark_authority.web.options import WebOptions

Kind = Literal["read", "write", "enrolment", "refusal", "check"]
_MAX_REMEMBERED = 4096
_RETRY_SECONDS = "10"


class RateLimits:
    """Counts what callers do, and refuses what is too much."""

    def __init__(self, options: WebOptions) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        numbers: dict[Kind, int] = {
            "read": options.reads_per_minute,
            "write": options.writes_per_minute,
            "enrolment": options.enrolments_per_minute,
            "refusal": options.enrolments_per_minute,
            "check": options.checks_per_minute,
        }
        self._items = {
            kind: RateLimitItemPerMinute(number, namespace=kind)
            for kind, number in numbers.items()
            if number
        }

    def count(self, kind: Kind, who: str) -> None:
        """Count one call.

        Raises:
            WebError: One too many (429).
        """
        item = self._items.get(kind)
        if item is not None and not self._limiter.hit(item, who):
            raise self._refusal(kind, who)

    def _refusal(self, kind: Kind, who: str) -> WebError:
        window = self._limiter.get_window_stats(self._items[kind], who)
        seconds = max(1, min(60, math.ceil(window.reset_time - time.time())))
        return WebError(
            429,
            f"too many requests: {self._items[kind].amount} a minute are allowed",
            f"wait {seconds} seconds",
            {"Retry-After": str(seconds)},
        )


class Turnstile:
    """Counts every request of an address, also those for paths that do not exist.

    Those under way at once, too: connections of a proxy say nothing about who is behind it.
    """

    def __init__(self, app: ASGIApp, rates: RateLimits, options: WebOptions) -> None:
        self._app = app
        self._rates = rates
        self._most = options.connections_per_address
        self._uncounted = Uncounted(options.uncounted)
        self._crowd = Crowd()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        who = network(scope)
        count = self._crowd.enter(who)
        try:
            if self._most and count > self._most and client_host(scope) not in self._uncounted:
                raise too_many_at_once(self._most)
            self._rates.count("read", caller(scope))
        except WebError as error:
            refusal = problem(error.status_code, error.detail, error.hint, error.headers)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)
        finally:
            self._crowd.leave(who)


def too_many_at_once(most: int) -> WebError:
    """Return the refusal for who has too many connections or requests open."""
    return WebError(
        429,
        f"too many requests at once: {most} are allowed",
        "wait until some are answered",
        {"Retry-After": _RETRY_SECONDS},
    )


def caller(scope: Scope) -> str:
    """Return whose calls are counted together; proxies are believed only if the server is told."""
    return address_group(client_host(scope))


def network(scope: Scope) -> str:
    """Return who shares what is held for a while: connections, and room for uploads."""
    return network_group(client_host(scope))


def client_host(scope: Scope) -> str:
    """Return the client's address."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


@functools.lru_cache(_MAX_REMEMBERED)
def address_group(host: str) -> str:
    """Return what is counted as one caller: an IPv4 address, or the /64 network of an IPv6 one."""
    return _group(host, 64)


@functools.lru_cache(_MAX_REMEMBERED)
def network_group(host: str) -> str:
    """Return who counts as one where many /64 are as cheap as one: those of a /48."""
    return _group(host, 48)


def _group(host: str, ipv6_bits: int) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, ipv6_bits), strict=False))
