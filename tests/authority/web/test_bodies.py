"""Bodies that are too large or too slow end early, whatever their headers say."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from authority_world import KeyOwner
from nsmark_authority.service import Authority
from processes import PATIENCE

JSON = {"Content-Type": "application/json"}


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_body_without_a_length_is_counted_as_it_comes(serve) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1 << 16
            yield b" " * (1 << 16)

    url = serve(max_document_bytes=1 << 20)
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        answer = client.post("/v1/owners", content=endless(), headers=JSON)

    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert sent < 40 << 20


def test_an_announced_length_is_refused_before_it_is_sent(serve) -> None:
    with connect(serve()) as connection:
        head = "POST /v1/owners HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 40, "7, 8"])
def test_a_length_that_is_none_is_refused(serve, length: str) -> None:
    with connect(serve()) as connection:
        head = "POST /v1/owners HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        answer = read_all(connection)

    assert answer.split(b" ", 2)[1] in (b"400", b"413")


def test_a_length_that_lies_hurts_nobody(serve) -> None:
    """Less than announced: the rest is waited for, not for ever."""
    with connect(serve(idle_seconds=0.5)) as connection:
        head = "POST /v1/owners HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{}}".encode())
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_drips_is_given_up(serve) -> None:
    url = serve(idle_seconds=PATIENCE, rate_seconds=0.5, min_bytes_per_second=1000)
    assert drip(url, b"", b" ").startswith(b"HTTP/1.1 408 ")


def test_a_fast_beginning_buys_no_slow_end(serve) -> None:
    url = serve(idle_seconds=PATIENCE, rate_seconds=0.5, min_bytes_per_second=1000)
    assert drip(url, b" " * 400_000, b" ").startswith(b"HTTP/1.1 408 ")


def test_a_body_takes_no_longer_than_it_may(serve) -> None:
    """Fast enough at every moment, but never done."""
    url = serve(idle_seconds=PATIENCE, body_seconds=1.0, min_bytes_per_second=1)

    assert drip(url, b"", b" " * 100).startswith(b"HTTP/1.1 408 ")


def drip(url: str, beginning: bytes, drop: bytes) -> bytes:
    """Send a body, then at most twenty drops a second until there is an answer; return it."""
    with connect(url) as connection:
        head = "POST /v1/owners HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 500000\r\n\r\n".encode() + beginning)
        connection.settimeout(0.05)
        answer = b""
        begin = time.monotonic()
        while not answer and time.monotonic() - begin < PATIENCE:
            with contextlib.suppress(OSError):  # nobody reads what comes after the answer
                connection.sendall(drop)
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(65536)
    return answer


def test_a_document_that_nobody_asked_for_is_not_read(serve) -> None:
    """FastAPI reads a JSON body before it looks who sends it."""
    with httpx.Client(base_url=serve(), trust_env=False, timeout=PATIENCE) as client:
        answer = client.post("/v1/tokens", content=b" " * 100_000, headers=JSON)
    assert answer.status_code == 413


def test_a_connection_that_says_nothing_is_closed(serve) -> None:
    url = serve(header_seconds=2)
    with connect(url) as silent, connect(url) as slow:
        slow.sendall(b"GET /v1/health HTTP/1.1\r\nX-Slow: ")
        assert read_all(silent) == b""
        assert read_all(slow) == b""
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        assert client.get("/v1/health").status_code == 200
        time.sleep(2.5)  # longer than headers may take
        assert client.get("/v1/health").status_code == 200


def test_also_a_later_request_must_finish_its_headers(serve) -> None:
    with connect(serve(header_seconds=2)) as connection:
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: here\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"G")
        read_all(connection)  # it ends


@pytest.mark.parametrize("before", [b"", b"GET /v1/health HTTP/1.1\r\nHost: here\r\n\r\n"])
def test_headers_without_end_are_given_up(serve, before: bytes) -> None:
    with connect(serve()) as connection:
        connection.sendall(before + b"GET /v1/health HTTP/1.1\r\nX: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                sent += connection.send(b"x" * (1 << 16))
    assert sent < 16 << 20  # what the system took into its own buffers


def test_an_upload_that_breaks_off_leaves_nothing(
    serve, authority: Authority, spool_folder: Path
) -> None:
    token = KeyOwner(1).register(authority).token.token
    url = serve()
    with connect(url) as connection:
        head = (
            "POST /v1/filings HTTP/1.1\r\nHost: here\r\n"
            f"Authorization: Bearer {token}\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 9999999\r\n\r\n"
            '--x\r\nContent-Disposition: form-data; name="content"; filename="a"\r\n\r\n'
        )
        connection.sendall(head.encode() + b"secret" * 100_000)
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        assert client.get("/v1/health").status_code == 200
    assert list(spool_folder.iterdir()) == []
