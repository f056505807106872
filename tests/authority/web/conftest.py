"""Servers: the real process, and the same server in a thread where a test sets its limits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the authority extra")

from authority_server import RunningAuthority, running_authority
from authority_world import KeyOwner
from nsmark_authority.service import Authority
from nsmark_authority.web.app import create_app
from nsmark_authority.web.options import WebOptions
from nsmark_authority.web.server import WebServer, listen, url_of

Serve = Callable[..., str]
"""Serves ``authority`` with the given options, and returns the address."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAuthority]:
    """One real server for all tests that leave it usable."""
    with running_authority(tmp_path_factory.mktemp("serve"), "--answer-days", "0") as running:
        yield running


@pytest.fixture(scope="session")
def tokens(server: RunningAuthority) -> dict[int, str]:
    """Tokens of two owners."""
    return {seed: server.register(KeyOwner(seed, server.name)) for seed in (1, 2)}


@pytest.fixture
def client(server: RunningAuthority, tokens: dict[int, str]) -> Iterator[httpx.Client]:
    """The first owner's connection."""
    with server.client(tokens[1]) as opened:
        yield opened


@pytest.fixture
def claimant(server: RunningAuthority, tokens: dict[int, str]) -> KeyOwner:
    return KeyOwner(1, server.name)


@pytest.fixture
def serve(authority: Authority) -> Iterator[Serve]:
    """Serve an authority of this process, with options of the test's choice."""
    with contextlib.ExitStack() as stack:

        def start(*, proxies: tuple[str, ...] = (), **options: object) -> str:
            listening = stack.enter_context(listen("127.0.0.1", 0))
            web = WebServer(create_app(authority, WebOptions(**options)), proxies)
            thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
            thread.start()

            def stop() -> None:
                web.should_exit = True
                thread.join()

            stack.callback(stop)
            return url_of(listening)

        yield start


@pytest.fixture
def spool_folder(authority: Authority) -> Path:
    return authority.settings.folder / "incoming"
