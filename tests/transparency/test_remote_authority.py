"""A real server that answers as an authority does, or not at all as one should."""

import contextlib
import gzip
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("asn1crypto", reason="needs the authority extra")
pytest.importorskip("rfc3161_client", reason="needs the authority extra")

from nsmark.errors import UsageError
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.remote_authority import fetch_token
from nsmark_authority.transparency.timestamp import check_token
from nsmark_authority.transparency.timestamp_messages import build_request
from processes import PATIENCE, wait_for

DIGEST = hashlib.sha256(b"a key file").digest()
REPLY = "application/timestamp-reply"


class Server(ThreadingHTTPServer):
    """Answers every POST with ``behave(handler, body)``."""

    daemon_threads = True

    def __init__(self, behave):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behave = behave
        self.seen = []
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.closing.set()
        self.shutdown()
        self.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/tsr"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, self.headers, body))
        # The client may have had enough.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.server.behave(self, body)

    def send(self, content, kind=REPLY, status=200, **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def fails(behave, **options):
    with Server(behave) as server:
        with pytest.raises(TransparencyError) as caught:
            fetch_token(server.url, build_request(DIGEST), **options)
        wait_for(lambda: server.seen, "the server to look")
    assert caught.value.hint
    assert server.url in str(caught.value)
    assert len(server.seen) == 1
    return str(caught.value)


def test_a_token_comes_back_and_holds(tmp_path):
    authority = LocalAuthority.create(tmp_path / "authority")
    request = build_request(DIGEST)

    with Server(lambda handler, body: handler.send(authority.answer(body))) as server:
        token = fetch_token(server.url, request)

    check_token(token, DIGEST, [authority.root], nonce=request.nonce)
    ((path, headers, body),) = server.seen
    assert (path, body) == ("/tsr", request.der)
    assert headers["content-type"] == "application/timestamp-query"
    assert headers["accept"] == REPLY
    assert headers["accept-encoding"] == "identity"


def test_a_refusal_is_told(tmp_path):
    def refuse(handler, body):
        authority = LocalAuthority.create(tmp_path / "authority")
        handler.send(authority.answer(b"not what was asked"))

    assert "bad_data_format" in fails(refuse)


def hang(handler, body):
    handler.server.closing.wait(PATIENCE)


def hang_halfway(handler, body):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"0")
    hang(handler, body)


def drip(handler, body):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b"0")


@pytest.mark.parametrize("behave", [hang, hang_halfway, drip])
def test_a_slow_authority_is_not_waited_for(behave):
    assert "within 0.5 s" in fails(behave, timeout_seconds=0.5)


def drop(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def cut(handler, body):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"0")
    handler.close_connection = True


@pytest.mark.parametrize("behave", [drop, cut])
def test_a_broken_connection_is_told(behave):
    assert "cannot be asked" in fails(behave)


@pytest.mark.parametrize("status", [204, 400, 404, 500, 503])
def test_another_status_is_told(status):
    assert f"answered {status}" in fails(lambda handler, body: handler.send(b"", status=status))


@pytest.mark.parametrize("content", [b"<html>Welcome</html>", b"", b"0" * 60_000])
def test_what_is_no_answer_is_told(content):
    said = fails(lambda handler, body: handler.send(content, "text/html"))

    assert "time-stamp answer" in said


def test_a_packed_answer_is_not_unpacked():
    packed = gzip.compress(b"\0" * (50 << 20))
    assert "time-stamp answer" in fails(
        lambda handler, body: handler.send(packed, content_encoding="gzip"), max_bytes=1 << 20
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status):
    with Server(lambda handler, body: handler.send(b"")) as other:
        target = f"{other.url}?secret"
        said = fails(lambda handler, body: handler.send(b"", status=status, location=target))

    assert f"redirects to {other.url}" in said
    assert "secret" not in said
    assert other.seen == []


def endless(handler, body):
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    for _ in range(50):
        handler.wfile.write(b"\0" * (1 << 20))


def large(handler, body):
    handler.send(b"\0" * (50 << 20))


@pytest.mark.parametrize("behave", [endless, large])
def test_a_huge_answer_is_not_read(behave):
    assert "more than 65,536 bytes" in fails(behave)


def test_nobody_listening_is_told():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        with pytest.raises(TransparencyError, match="cannot be asked") as caught:
            fetch_token(url, build_request(DIGEST))
    assert caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "timestamp.example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "http://[",
        "http://h:x/",
        "http://h:0/",
        "http://a b/",
        "http://h/\n",
    ],
)
def test_only_web_addresses_are_asked(url):
    with pytest.raises(UsageError) as caught:
        fetch_token(url, build_request(DIGEST))
    assert caught.value.hint


def test_a_password_in_the_address_is_not_shown():
    with pytest.raises(UsageError) as caught:
        fetch_token("http://me:hunter2@example.com/", build_request(DIGEST))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, 601, float("nan"), float("inf")])
def test_the_timeout_has_limits(seconds):
    with pytest.raises(UsageError, match="timeout_seconds"):
        fetch_token("http://127.0.0.1:1/", build_request(DIGEST), timeout_seconds=seconds)
