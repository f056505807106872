"""How often one may ask: per client address and per token, counted in memory."""

from __future__ import annotations

import ipaddress
import math
import time
from typing import Literal

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send

from nsmark.authority.web.errors import WebError, problem
from nsmark.authority.web.options import WebOptions

Kind = Literal["read", "write", "enrolment", "refusal"]


class RateLimits:
    """Counts what callers do, and refuses what is too much."""

    def __init__(self, options: WebOptions) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        numbers: dict[Kind, int] = {
            "read": options.reads_per_minute,
            "write": options.writes_per_minute,
            "enrolment": options.enrolments_per_minute,
            "refusal": options.enrolments_per_minute,
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

    def require_free(self, kind: Kind, who: str) -> None:
        """Refuse a caller who has used up what he may do, without counting."""
        item = self._items.get(kind)
        if item is not None and not self._limiter.test(item, who):
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
    """Counts every request of an address, also those for paths that do not exist."""

    def __init__(self, app: ASGIApp, rates: RateLimits) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            try:
                self._rates.count("read", caller(scope))
            except WebError as error:
                refusal = problem(error.status_code, error.detail, error.hint, error.headers)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def caller(scope: Scope) -> str:
    """Return whose calls are counted together; proxies are believed only if the server is told."""
    client = scope.get("client")
    return address_group(client[0]) if client else "unknown"


def address_group(host: str) -> str:
    """Return what is counted as one caller: an IPv4 address, or the /64 network of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
