"""A real server that is busy, broken, slow or hostile, and what is made of it."""

import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from endpoint_server import EndpointServer, simple_vectors
from nsmark.errors import SuspectError
from nsmark.payload import published_word_list
from nsmark.suspects import QueryOptions, open_suspect
from nsmark.suspects.http_client import USUAL_WORDS, _retry_after
from processes import PATIENCE

TEXTS = ["a text", "another text", "a third"]


@pytest.fixture
def server():
    with EndpointServer(simple_vectors) as server:
        yield server


def ask(server, texts=TEXTS, url=None, **options):
    settings = {"decoys": 0, "backoff_seconds": 0.01, "retries": 2, "timeout_seconds": PATIENCE}
    queries = QueryOptions(**(settings | options))
    return open_suspect(f"openai:{url or server.url}#m", queries=queries).outputs(texts)


def fails(server, **options):
    with pytest.raises(SuspectError) as caught:
        ask(server, **options)
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return str(caught.value)


def status(code, text="", **headers):
    def fault(handler, payload):
        handler.send_content(text.encode(), "text/plain", code, **headers)
        return True

    return fault


def drop(handler, payload):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def cut(handler, payload):
    """Announce more than is sent."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
    return True


@pytest.mark.parametrize(
    "fault", [status(429), status(500), status(503, retry_after="0"), status(408), drop, cut]
)
def test_what_passes_is_tried_again(server, fault):
    server.faults.extend([fault, fault])

    assert (ask(server) == simple_vectors(TEXTS)).all()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "said"), [(status(500, "overloaded"), "500: 'overloaded'"), (drop, "asked 3 times")]
)
def test_what_does_not_pass_is_an_error_after_the_last_attempt(server, fault, said):
    server.faults.extend([fault] * 9)

    assert said in fails(server)
    assert len(server.requests) == 3


def test_endpoint_is_left_alone_as_long_as_it_asks(server):
    server.faults.append(status(429, retry_after="1"))
    started = time.monotonic()

    ask(server)

    assert time.monotonic() - started >= 1


def test_endpoint_cannot_make_us_wait_for_ever(server):
    server.faults.append(status(429, retry_after="100000"))
    started = time.monotonic()

    ask(server, max_wait_seconds=0.2)

    assert time.monotonic() - started >= 0.2


def test_seconds_and_dates_are_understood():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    earlier = format_datetime(datetime.now(UTC) - timedelta(seconds=100))

    assert _retry_after("2.5") == 2.5
    assert 95 < _retry_after(later) <= 100
    assert _retry_after(earlier) == 0
    for nothing in (None, "", "soon", "nan", "inf", "Mon, 99 Foo 2026"):
        assert _retry_after(nothing) is None


def test_pauses_grow_and_differ(server):
    server.faults.extend([status(503)] * 4)
    started = time.monotonic()

    ask(server, retries=4, backoff_seconds=0.05)

    # 0.05 + 0.1 + 0.2 + 0.4, each give or take a half
    assert time.monotonic() - started >= 0.37


@pytest.mark.parametrize("dripping", [False, True])
def test_slow_answers_end(server, dripping):
    ended = threading.Event()

    def slow(handler, payload):
        handler.send_response(200)
        handler.send_header("content-length", "100000")
        handler.end_headers()
        while not ended.wait(0.02):
            if dripping:
                handler.wfile.write(b" ")
        return True

    server.faults.append(slow)
    try:
        assert "within 0.3 s" in fails(server, timeout_seconds=0.3, retries=0)
    finally:
        ended.set()


def test_answer_after_a_slow_one_is_taken(server):
    def slow(handler, payload):
        answered.wait(PATIENCE)
        return False

    answered = threading.Event()
    server.faults.append(slow)

    assert (ask(server, timeout_seconds=3, retries=9) == simple_vectors(TEXTS)).all()
    answered.set()


def test_huge_answers_are_not_read(server):
    sent = []

    def huge(handler, payload):
        handler.send_response(200)
        handler.send_header("content-length", str(10**12))
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" " * (1 << 20))
            sent.append(1)
        return True

    server.faults.append(huge)

    assert "bytes" in fails(server)
    assert len(sent) < 50


def test_packed_answers_are_bounded_unpacked(server):
    import gzip

    def bomb(handler, payload):
        handler.send_content(gzip.compress(b" " * (64 << 20)), content_encoding="gzip")
        return True

    server.faults.append(bomb)

    assert "bytes" in fails(server)


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_redirects_are_not_followed(server, monkeypatch, code):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with EndpointServer(simple_vectors) as other:
        target = other.url.replace("127.0.0.1", "localhost") + "/embeddings?sk=1"
        server.faults.append(status(code, location=target))

        message = fails(server)

        assert f"redirects to {target.partition('?')[0]}" in message
        assert not other.requests


@pytest.mark.parametrize("code", [401, 403, 404, 405, 413, 418])
def test_final_answers_are_not_tried_again(server, code):
    server.faults.append(status(code, '{"error": {"message": "no such model: m"}}'))

    assert f"{code}: 'no such model: m'" in fails(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html>\n<html>Welcome</html>", b"", b"\xff\xfe\x00", b"[" * 100_000, b"{"]
)
def test_pages_that_are_no_json_are_quoted_in_one_short_line(server, page):
    def fault(handler, payload):
        handler.send_content(page, "text/html")
        return True

    server.faults.append(fault)

    message = fails(server)

    assert "no JSON" in message
    assert "\n" not in message
    assert len(message) < 400


def test_nobody_there_is_an_error(server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

        assert "asked 3 times" in fails(server, url=url)


def test_plain_server_is_not_spoken_to_with_tls(server):
    assert "asked 3 times" in fails(server, url=server.url.replace("http:", "https:"))
    assert not server.requests


def test_certificate_nobody_vouches_for_is_refused(tmp_path):
    import ssl

    with EndpointServer(simple_vectors) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self_signed(tmp_path))
        server.socket = context.wrap_socket(server.socket, server_side=True)

        message = fails(server, url=server.url.replace("http:", "https:"))

        assert "certificate" in message
        assert not server.requests


def self_signed(folder):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return files


def test_key_is_sent_and_shown_nowhere(server, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    caplog.set_level("DEBUG")
    options = {"api_key_variable": "MY_KEY", "cache": tmp_path}

    ask(server, **options)
    # An endpoint may repeat what it was sent.
    server.faults.append(status(401, "wrong key: Bearer sk-very-secret"))
    message = fails(server, texts=["new"], **options)

    assert {headers["Authorization"] for headers, _ in server.requests} == {"Bearer sk-very-secret"}
    assert "wrong key: Bearer [API key]" in message
    assert "sk-very-secret" not in message + caplog.text
    assert all("sk-very-secret" not in file.read_text() for file in tmp_path.iterdir())


@pytest.mark.parametrize("code", [400, 401, 500, 200])
def test_words_that_were_sent_are_not_quoted(server, code):
    """A report about a failed measurement must not tell the trigger."""

    def echo(handler, payload):
        said = f"the input {payload['input'][0].upper()} is too long for this model"
        return status(code, said)(handler, payload)

    server.faults += [echo, echo]  # a refusal is followed by another encoding
    error = fails(server, texts=["a zylophant walks"], retries=0)
    assert "zylophant" not in str(error).lower()
    assert "walks" not in str(error).lower()
    assert "is too long for this model" in str(error)


def test_usual_words_of_errors_are_no_triggers():
    assert not USUAL_WORDS & set(published_word_list().words)


def test_request_does_not_say_that_it_is_a_test(server):
    ask(server)

    assert "nsmark" not in repr(server.requests).lower()


def test_without_a_key_none_is_sent(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    ask(server)

    assert "Authorization" not in server.requests[0][0]
