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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nsmark.authority.web.context import Context
from nsmark.errors import UsageError

_BACKLOG = 512
_MAX_CONNECTIONS = 512
_STOP_SECONDS = 5
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

        class Protocol(_ImpatientProtocol):
            header_seconds = context.options.header_seconds

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


class _ImpatientProtocol(HttpToolsProtocol):
    """Closes connections that say nothing, or never finish saying what they want."""

    header_seconds = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(self.header_seconds, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        # A cycle is there once the headers of the first request were complete.
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


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
    levels: dict[str, Any] = {"nsmark": logging.INFO, "uvicorn": logging.WARNING}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
