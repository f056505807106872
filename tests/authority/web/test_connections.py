"""Nobody holds so many connections that none are left to the others."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from nsmark_authority.web.crowds import Crowd, Uncounted
from processes import PATIENCE, wait_for

ASK = b"GET /v1/health HTTP/1.1\r\nHost: here\r\n\r\n"


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def ask(connection: socket.socket) -> bytes:
    connection.sendall(ASK)
    return connection.recv(65536)


def is_served(url: str) -> bool:
    with connect(url) as connection:
        return ask(connection).startswith(b"HTTP/1.1 200 ")


def wait_until_served(url: str) -> None:
    """A connection that was closed is counted out a moment later."""
    wait_for(lambda: is_served(url), "the others to be counted out")


def test_an_address_has_so_many_connections_and_no_more(serve) -> None:
    url = serve(connections_per_address=2, uncounted=())
    with connect(url) as first, connect(url) as second:
        assert ask(first).startswith(b"HTTP/1.1 200 ")
        assert ask(second).startswith(b"HTTP/1.1 200 ")
        with connect(url) as third:
            refused = ask(third)
            while part := third.recv(65536):
                refused += part
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"application/problem+json" in refused
        assert b"retry-after: " in refused.lower()
        assert b"connection: close" in refused.lower()
        assert ask(first).startswith(b"HTTP/1.1 200 ")
    wait_until_served(url)


def test_far_too_many_are_closed_without_a_word(serve) -> None:
    url = serve(connections_per_address=2, uncounted=(), header_seconds=2 * PATIENCE)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(url)) for _ in range(2)]
        for connection in held:
            ask(connection)
        waiting = [stack.enter_context(connect(url)) for _ in range(2)]
        more = stack.enter_context(connect(url))
        with contextlib.suppress(ConnectionError):
            assert more.recv(1) == b""
        # Those that are only to be told so are not waited for long.
        for connection in waiting:
            assert connection.recv(1) == b""
    wait_until_served(url)


@pytest.mark.parametrize(
    "options", [{}, {"uncounted": (), "proxies": ("127.0.0.1",)}, {"connections_per_address": 0}]
)
def test_proxies_and_this_machine_have_as_many_as_they_like(serve, options) -> None:
    url = serve(**{"connections_per_address": 2} | options)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            assert ask(stack.enter_context(connect(url))).startswith(b"HTTP/1.1 200 ")


def test_behind_a_proxy_requests_under_way_are_counted(serve) -> None:
    url = serve(connections_per_address=2, proxies=("127.0.0.1",))
    begun = (
        "POST /v1/owners HTTP/1.1\r\nHost: here\r\nX-Forwarded-For: {}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    with (
        contextlib.ExitStack() as stack,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        for _ in range(2):
            slow = stack.enter_context(connect(url))
            slow.sendall(begun.format("203.0.113.1").encode())
        crowded = {"X-Forwarded-For": "203.0.113.1"}
        wait_for(lambda: client.get("/v1/health", headers=crowded).is_error, "both to be counted")
        busy = client.get("/v1/health", headers=crowded)
        other = client.get("/v1/health", headers={"X-Forwarded-For": "203.0.113.2"})
        assert (busy.status_code, other.status_code) == (429, 200)
        assert busy.headers["content-type"] == "application/problem+json"
        assert int(busy.headers["retry-after"]) >= 1
        stack.close()
        wait_for(
            lambda: client.get("/v1/health", headers=crowded).is_success, "both to be counted out"
        )


def test_a_crowd_is_counted_in_and_out() -> None:
    crowd = Crowd()
    assert [crowd.enter("a"), crowd.enter("a"), crowd.enter("b")] == [1, 2, 1]
    crowd.leave("a")
    assert crowd.enter("a") == 2
    for who in ("a", "a", "b"):
        crowd.leave(who)
    assert len(crowd) == 0


@pytest.mark.parametrize(
    ("host", "holds"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("2001:db8::7", True),
        ("fe80::1%eth0", False),
        ("192.0.2.1", False),
        ("", False),
        ("somebody", False),
    ],
)
def test_who_is_not_counted(host: str, holds: bool) -> None:
    uncounted = Uncounted(("127.0.0.0/8", "::1", "10.1.2.3", "2001:db8::/32", "no address"))
    assert (host in uncounted) is holds
    assert host in Uncounted(("*",))
