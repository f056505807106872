"""The HTTP server around the application: connections, signals, what is logged."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nsmark.errors import UsageError
from nsmark_authority.web.context import Context
from nsmark_authority.web.crowds import Crowd, Uncounted
from nsmark_authority.web.errors import problem
from nsmark_authority.web.limits import network_group, too_many_at_once
from nsmark_authority.web.options import WebOptions
from nsmark_authority.web.outer import Outer

_BACKLOG = 512
_MAX_CONNECTIONS = 512
_STOP_SECONDS = 5
_REFUSAL_SECONDS = 2.0
"""In which a connection must have asked for something to hear that it is one too many."""

_MAX_HEADER_BYTES = 64 << 10
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class WebServer(uvicorn.Server):
    """Serves one application until it is told to stop."""

    def __init__(
        self,
        app: FastAPI,
        trusted_proxies: Sequence[str] = (),
        on_started: Callable[[], None] | None = None,
    ) -> None:
        """Prepare it.

        Args:
            app: What is served.
            trusted_proxies: Addresses whose ``X-Forwarded-For`` is believed.
            on_started: Called once it answers, and signals end it in order.
        """
        context: Context = app.state.context
        self._context, self._on_started = context, on_started

        class Protocol(_GuardedProtocol):
            options = context.options
            crowd = Crowd()
            refusing = _refusing(context.options.connections_per_address)
            uncounted = Uncounted((*context.options.uncounted, *trusted_proxies))

        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # X-Forwarded-For is believed from these addresses only.
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=list(trusted_proxies),
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self._on_started is not None and self.started:
            self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; streams end by themselves."""
        self._context.stopping.set()
        super().handle_exit(sig, frame)


class _GuardedProtocol(HttpToolsProtocol):
    """Closes connections that never finish saying what they want, at whichever request.

    And those that are too many of one address. They are told so, for as long as there are not twice
    as many; more are closed at once.
    """

    options: WebOptions
    crowd: Crowd
    uncounted: Uncounted
    refusing: Any

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._header_seconds = self.options.header_seconds
        self._awaits_headers, self._num_header_bytes, self._num_complete = True, 0, 0
        self._patience: asyncio.TimerHandle | None = None
        self._group: str | None = None
        self._count_in()
        self._begin_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        if self._group is not None:
            self.crowd.leave(self._group)
        super().connection_lost(exc)

    def _count_in(self) -> None:
        most, host = self.options.connections_per_address, self.client[0] if self.client else ""
        if not most or host in self.uncounted:
            return
        self._group = network_group(host)
        count = self.crowd.enter(self._group)
        if count > most:
            self.app = self.refusing
            self._header_seconds = min(self._header_seconds, _REFUSAL_SECONDS)
        if count > 2 * most:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._awaits_headers and self._patience is None:
            self._begin_waiting()
        awaited, before = self._awaits_headers, self._num_complete
        super().data_received(data)
        if awaited and self._awaits_headers and self._num_complete == before:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > _MAX_HEADER_BYTES:
                self.transport.close()

    def on_headers_complete(self) -> None:
        self._awaits_headers, self._num_header_bytes = False, 0
        self._num_complete += 1
        self._end_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._awaits_headers = True  # of the next request; silence is the keep-alive's business
        super().on_message_complete()

    def _begin_waiting(self) -> None:
        self._patience = self.loop.call_later(self._header_seconds, self.transport.close)

    def _end_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _refusing(most: int) -> ASGIApp:
    """Return what answers on connections that are too many."""
    error = too_many_at_once(most)
    headers = {**(error.headers or {}), "Connection": "close"}
    return Outer(problem(error.status_code, error.detail, error.hint, headers))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any free one.

    Raises:
        UsageError: The address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, not left to the system: asyncio sends at once (TCP_NODELAY) only where it sees TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}", "choose another --host or --port"
        ) from error


def url_of(listening: socket.socket) -> str:
    """Return the address of a listening socket, as a browser wants it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Return whether only this machine can reach it."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def log_to_standard_error() -> None:
    """Write every log line to standard error; there are no secrets in them."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    ours, theirs = ("nsmark", "nsmark_authority"), ("uvicorn",)
    for name in (*ours, *theirs):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.INFO if name in ours else logging.WARNING)
        logger.propagate = False
