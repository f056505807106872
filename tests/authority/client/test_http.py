"""Servers that are slow, broken or hostile: each is noticed, with an error of ours."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler

import pytest

from nsmark.errors import InputError, NsmarkError, UsageError
from nsmark_authority.client.http import AuthorityConnection, Body, normalise_url
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError
from watched_log import respond, serving

TOKEN = "nsm_0123456789abcdef"


def problem(status: int, body: bytes = b"", **headers: str):
    return lambda request: respond(request, body, status, "application/problem+json", **headers)


def drip_headers(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100):
        request.wfile.write(f"X-{number}: 1\r\n".encode())
        request.wfile.flush()
        time.sleep(0.1)


def drip_body(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    for _ in range(100):
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.1)


def endless(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        request.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


@pytest.mark.parametrize("drip", [drip_headers, drip_body])
def test_an_answer_that_drips_comes_to_an_end(drip):
    with serving(drip) as url, AuthorityConnection(url, timeout_seconds=0.5) as connection:
        with pytest.raises(AuthorityError, match="no whole answer within"):
            connection.get("/v1/authority")
        # The connection can be used again.
        with pytest.raises(AuthorityError):
            connection.get("/v1/authority")


def test_a_server_that_says_nothing_is_given_up():
    with (
        serving(lambda request: time.sleep(5)) as url,
        AuthorityConnection(url, timeout_seconds=0.3) as connection,
        pytest.raises(AuthorityError, match="no whole answer"),
    ):
        connection.get("/v1/authority")


def test_an_answer_without_end_is_cut():
    with (
        serving(endless) as url,
        AuthorityConnection(url) as connection,
        pytest.raises(AuthorityError, match="more than 1,000,000 bytes"),
    ):
        connection.get("/v1/authority", max_bytes=1_000_000)


def test_a_packed_answer_is_not_unpacked():
    import gzip

    bomb = gzip.compress(b"{" + b" " * 50_000_000 + b"}")
    with (
        serving(lambda request: respond(request, bomb, Content_Encoding="gzip")) as url,
        AuthorityConnection(url) as connection,
        pytest.raises(AuthorityError, match="no JSON object"),
    ):
        connection.get("/v1/authority").to_json("description")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_refused_and_the_token_goes_nowhere(status):
    asked: list[str] = []

    def elsewhere(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        respond(request, b"{}")

    with (
        serving(elsewhere) as other,
        serving(problem(status, Location=f"{other}/v1/tokens")) as url,
        AuthorityConnection(url, TOKEN) as connection,
        pytest.raises(AuthorityError, match="redirects to") as refused,
    ):
        connection.get("/v1/tokens", with_token=True)
    assert asked == []
    assert "not followed" in refused.value.hint


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InputError),
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, InputError),
        (422, InputError),
        (500, AuthorityError),
    ],
)
def test_problems_become_errors_with_the_servers_words(status, kind):
    body = b'{"detail": "so it\\u001b[2J is", "hint": "do\\nthat"}'
    with (
        serving(problem(status, body)) as url,
        AuthorityConnection(url) as connection,
        pytest.raises(kind) as refused,
    ):
        connection.get("/v1/authority")
    assert type(refused.value) is kind
    assert str(refused.value) == "so it?[2J is"
    assert refused.value.hint == "do that"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'{"detail": 5}', b"\xff", b"{" * 100_000]
)
def test_an_error_that_explains_nothing_still_has_a_hint(body):
    with (
        serving(problem(500, body)) as url,
        AuthorityConnection(url) as connection,
        pytest.raises(AuthorityError, match="answered 500") as refused,
    ):
        connection.get("/v1/authority")
    assert refused.value.hint


def test_a_server_that_repeats_the_token_does_not_get_it_into_the_error():
    body = f'{{"detail": "your token {TOKEN} is bad"}}'.encode()
    with (
        serving(problem(403, body)) as url,
        AuthorityConnection(url, TOKEN) as connection,
        pytest.raises(AccessDeniedError) as refused,
    ):
        connection.get("/v1/tokens", with_token=True)
    assert TOKEN not in str(refused.value)


def test_reading_is_tried_again_while_the_server_is_busy_writing_is_not():
    calls: list[str] = []

    def busy_twice(request: BaseHTTPRequestHandler) -> None:
        calls.append(request.command)
        if request.command == "GET" and len(calls) == 3:
            respond(request, b'{"a": 1}')
        else:
            respond(request, b"{}", 429, Retry_After="0")

    with serving(busy_twice) as url, AuthorityConnection(url, TOKEN) as connection:
        assert connection.get("/v1/authority").to_json("answer") == {"a": 1}
        assert calls == ["GET"] * 3
        with pytest.raises(AuthorityError, match="busy") as refused:
            connection.send("POST", "/v1/filings", Body.of(b"{}"))
        assert "try again in" in refused.value.hint
        assert calls == ["GET"] * 3 + ["POST"]


def test_a_server_that_wants_hours_is_not_waited_for():
    with (
        serving(problem(503, Retry_After="9999")) as url,
        AuthorityConnection(url) as connection,
        pytest.raises(AuthorityError, match="busy"),
    ):
        connection.get("/v1/authority")


def test_nobody_there():
    with serving(problem(200)) as url:
        pass
    with AuthorityConnection(url) as connection, pytest.raises(AuthorityError, match="cannot be"):
        connection.get("/v1/authority")


def test_secrets_go_over_plain_http_only_to_this_machine_or_when_allowed():
    stranger = AuthorityConnection("http://authority.example", TOKEN)
    for call in (
        lambda: stranger.send("POST", "/v1/filings", Body.of(b"{}")),
        lambda: stranger.get("/v1/tokens", with_token=True),
    ):
        with pytest.raises(UsageError, match="not https"):
            call()
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
        with pytest.raises(AuthorityError):  # nobody listens, but it was tried
            AuthorityConnection(url, TOKEN).send("POST", "/v1/filings", Body.of(b"{}"))


def test_a_proxy_of_the_environment_never_sees_plain_http(monkeypatch):
    def never(request: BaseHTTPRequestHandler) -> None:
        raise AssertionError(request.path)

    direct = serving(lambda request: respond(request, b'{"direct": true}'))
    with direct as url, serving(never) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        with AuthorityConnection(url, TOKEN) as connection:
            answer = connection.get("/v1/tokens", with_token=True)
    assert answer.to_json("answer") == {"direct": True}


def test_without_a_token_nothing_is_sent():
    with pytest.raises(AccessDeniedError, match="no token"):
        AuthorityConnection("http://127.0.0.1:1").send("POST", "/v1/filings", Body.of(b"{}"))


@pytest.mark.parametrize(
    "token", ["", "short", "has a space in it", "line\nbreak-is-bad", "ü" * 20]
)
def test_what_is_no_token_is_not_shown(token):
    with pytest.raises(UsageError) as refused:
        AuthorityConnection("https://authority.example", token)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Authority.Example:443/v1/", "https://authority.example"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://host.example/path/", "https://host.example/path"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_one_authority_has_one_url(url, expected):
    assert normalise_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "authority.example",
        "ftp://authority.example",
        "https://",
        "https://user:secret@authority.example",
        "https://authority.example?x=1",
        "https://authority.example#x",
        "https://authority.example:99999",
        "https://authority.example:0",
        "https://auth ority.example",
        "https://authority.example\\@evil.example",
        "https://аuthority.example",
    ],
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(NsmarkError) as refused:
        normalise_url(url)
    assert "secret" not in str(refused.value)


def test_a_token_that_breaks_a_header_is_not_taken():
    connection = AuthorityConnection("http://127.0.0.1:1")
    for token in ("nsm_1234\r\nX-Evil: 1", "", "t\u00f6ken-t\u00f6ken"):
        with pytest.raises(AuthorityError, match="no token"):
            connection.set_token(token)


def test_a_large_answer_over_a_slow_line_is_waited_for():
    size = 1 << 20

    def slow(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(8):
            request.wfile.write(b" " * (size // 8))
            request.wfile.flush()
            time.sleep(0.1)

    with serving(slow) as url, AuthorityConnection(url, timeout_seconds=0.4) as connection:
        assert len(connection.get("/v1/log/entries").content) == size
