"""Strangers name URLs: none may lead into the authority's own network."""

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from http.server import ThreadingHTTPServer

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from endpoint_server import EndpointServer, Handler, simple_vectors
from nsmark.errors import ConfigError, NsmarkError, SuspectError
from nsmark.suspects import QueryOptions, open_suspect
from nsmark_authority.outgoing import (
    PUBLIC_PORTS,
    GuardedTransport,
    OutgoingPolicy,
    check_url,
    find_destination,
    is_own_address,
)

PUBLIC = "93.184.216.34"


def resolving(*addresses):
    return OutgoingPolicy(resolve=lambda host, port: addresses)


def no_resolver(host, port):
    raise AssertionError(f"{host} was resolved")


def refused(url, policy=None):
    with pytest.raises(SuspectError) as caught:
        find_destination(url, policy or OutgoingPolicy(resolve=no_resolver))
    assert caught.value.hint
    return str(caught.value)


@pytest.fixture
def server():
    with EndpointServer(simple_vectors) as running:
        yield running


def port_of(server):
    return server.server_address[1]


PRIVATE_ADDRESSES = [
    "0.0.0.0",  # noqa: S104 - to be refused
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_addresses_that_are_not_public_are_refused_as_they_are_and_behind_a_name(address):
    host = f"[{address}]" if ":" in address else address

    assert "not public" in refused(f"http://{host}/v1")
    assert "not public" in refused("http://suspect.example/v1", resolving(address))


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "0x7f.0x0.0x0.0x1",
        "127.0.0.0x1",
        "0",
        "1.2.3.4.5",
        "256.1.1.1",
        "8.8.8.8.",
        "suspect.123",
        "suspect.0x",
    ],
)
def test_other_spellings_of_addresses_are_refused_unresolved(host):
    assert "refused" in refused(f"http://{host}/v1")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "db.localhost",
        "printer.local",
        "metadata.google.internal",
        "redis",
        "host.lan",
        "1.0.0.127.in-addr.arpa",
        "hidden.onion",
        "xn--",
        "a..b.example",
        "-a.example",
        "%6c%6f%63%61%6c.example",
        "a%00.example",
        "[::1%25eth0]",
        "[fe80::1%1]",
        "[v1.x]",
        "[::g]",
        "x" * 64 + ".example",
    ],
)
def test_names_of_private_networks_and_no_names_are_refused_unresolved(host):
    assert "refused" in refused(f"http://{host}/v1")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://suspect.example/",
        "file:///etc/passwd",
        "gopher://suspect.example:80/",
        "unix:///var/run/docker.sock",
        "//suspect.example/",
        "suspect.example",
        "",
        "http://",
        "http:///v1",
        "http://user@suspect.example/",
        "http://user:pw@suspect.example/",
        "http://suspect.example:80@127.0.0.1/",
        "http://127.0.0.1\\@suspect.example/",
        "http://suspect.example\\.evil.example/",
        "http://suspect.example/\r\nX: y",
        "http://suspect.example/ x",
        "http://süspect.example/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://suspect.example:99999/",
        "http://suspect.example:port/",
        "http://suspect.example:0/",
        "http://suspect.example:22/",
        "http://suspect.example:25/",
        "http://suspect.example:6379/",
        "https://suspect.example:7999/",
        "http://[::1/",
        "http://suspect.example/" + "x" * 3000,
    ],
)
def test_urls_that_are_not_for_asking_are_refused_unresolved(url):
    message = refused(url)

    assert "pw" not in message


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://suspect.example/v1", ("https", "suspect.example", 443)),
        ("http://Suspect.Example/v1", ("http", "suspect.example", 80)),
        ("http://suspect.example:8080/v1", ("http", "suspect.example", 8080)),
        (f"http://{PUBLIC}:8999/v1", ("http", PUBLIC, 8999)),
        ("http://[2606:4700::1111]/v1", ("http", "2606:4700::1111", 80)),
        ("https://1.suspect-2.my_org.example/", ("https", "1.suspect-2.my_org.example", 443)),
    ],
)
def test_public_hosts_may_be_asked(url, found):
    assert check_url(url, OutgoingPolicy(resolve=no_resolver)) == found
    there = find_destination(url, resolving(PUBLIC))
    assert (there.scheme, there.host, there.port) == found


def test_one_private_address_among_public_ones_is_enough_to_refuse():
    assert "not public" in refused("http://a.example/", resolving(PUBLIC, "10.0.0.1"))
    assert "not public" in refused("http://a.example/", resolving(PUBLIC, "::1"))


def test_a_public_address_of_this_machine_itself_is_refused():
    def is_own(address):
        return str(address) == PUBLIC

    policy = OutgoingPolicy(resolve=lambda host, port: ["1.1.1.1", PUBLIC], is_own=is_own)
    assert "this machine" in refused(f"http://{PUBLIC}:8000/v1", policy)
    assert "this machine" in refused("http://a.example/v1", policy)
    there = find_destination("http://1.1.1.1:8000/v1", policy)
    assert str(there.address) == "1.1.1.1"

    allowed = frozenset({f"{PUBLIC}:8000", "a.example:80"})
    vouched = OutgoingPolicy(allowed, lambda host, port: [PUBLIC], is_own=is_own)
    for url in (f"http://{PUBLIC}:8000/v1", "http://a.example/v1"):
        assert str(find_destination(url, vouched).address) == PUBLIC


def test_this_machine_knows_its_addresses():
    assert is_own_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_own_address(ipaddress.ip_address(PUBLIC))
    assert not is_own_address(ipaddress.ip_address("2606:4700::1111"))
    assert OutgoingPolicy().is_own is is_own_address


def test_where_any_address_can_be_bound_that_says_nothing(monkeypatch):
    """As with ``net.ipv4.ip_nonlocal_bind``."""
    monkeypatch.setattr(socket.socket, "bind", lambda *_: None)
    assert not is_own_address(ipaddress.ip_address(PUBLIC))


@pytest.mark.parametrize("answer", [(), ("no address",), (PUBLIC,) * 65, ("fe80::1%eth0",)])
def test_resolvers_answer_strangely(answer):
    refused("http://a.example/", resolving(*answer))


@pytest.mark.parametrize("error", [OSError("no such host"), UnicodeError("label too long")])
def test_unknown_hosts_are_an_error_of_ours(error):
    def resolve(host, port):
        raise error

    assert "not known" in refused("http://a.example/", OutgoingPolicy(resolve=resolve))


def test_an_address_of_the_kind_every_machine_reaches_is_preferred():
    there = find_destination("http://a.example/", resolving("2606:4700::1111", PUBLIC))
    assert str(there.address) == PUBLIC


@given(st.integers(0, 2**32 - 1))
def test_no_spelling_of_a_number_is_a_host(number):
    for spelling in (str(number), hex(number), f"0{number:o}", f"a.{number}", f"a.{number:#x}"):
        with pytest.raises(SuspectError):
            check_url(f"http://{spelling}/", OutgoingPolicy())


@given(st.integers(0, 2**32 - 1))
def test_whatever_python_calls_not_global_is_refused(number):
    address = ipaddress.IPv4Address(number)
    try:
        find_destination(f"http://{address}/", OutgoingPolicy(resolve=no_resolver))
    except SuspectError:
        return
    assert address.is_global
    assert not address.is_multicast


@given(st.integers(0, 2**128 - 1), st.sampled_from([0, 0x2001, 0x2002, 0x64FF9B, 0xFE80, 0xFC00]))
def test_whatever_python_calls_not_global_is_refused_in_ipv6(number, start):
    shifted = (start << 112 if start <= 0xFFFF else start << 96) | number >> 16
    for address in map(ipaddress.IPv6Address, (number, shifted & (2**128 - 1))):
        try:
            find_destination(f"http://[{address}]/", OutgoingPolicy(resolve=no_resolver))
        except SuspectError:
            continue
        assert address.is_global
        assert not address.is_multicast
        assert address.ipv4_mapped is address.sixtofour is address.teredo is None


@given(st.text(max_size=60))
def test_any_text_is_refused_or_a_url(text):
    for url in (text, f"http://{text}", f"https://{text}/v1"):
        try:
            _, host, port = check_url(url, OutgoingPolicy())
        except NsmarkError:
            continue
        assert "." in host or ":" in host
        assert port in PUBLIC_PORTS


# --- Real servers. ---


def ask(url, policy, *, deadline=None, **options):
    destination = find_destination(url, policy)
    queries = QueryOptions(
        decoys=0,
        retries=options.pop("retries", 0),
        connect=lambda _: GuardedTransport(destination, policy, deadline),
        **options,
    )
    return open_suspect(f"openai:{url}#m", queries=queries).outputs(["one", "two"])


def test_this_machine_is_asked_only_where_the_operator_allows_it(server):
    port = port_of(server)
    with pytest.raises(SuspectError, match="refused"):
        ask(server.url, OutgoingPolicy())
    with pytest.raises(SuspectError, match="refused"):
        ask(server.url, OutgoingPolicy(frozenset({f"127.0.0.1:{port + 1}"})))
    assert server.requests == []

    found = ask(server.url, OutgoingPolicy(frozenset({f"127.0.0.1:{port}"})))

    assert (found == simple_vectors(["one", "two"])).all()


@pytest.mark.parametrize("entry", ["127.0.0.1", "a.example:", "A.example:80", "u@a:80", "a:80/x"])
def test_allow_list_holds_pairs(entry):
    with pytest.raises(ConfigError):
        OutgoingPolicy(frozenset({entry}))


def test_the_guard_stands_even_where_no_destination_was_looked_for(server):
    """The client asks the transport for its own URL: another host's guard refuses it."""
    elsewhere = find_destination("http://a.example:8000/", resolving(PUBLIC))
    queries = QueryOptions(decoys=0, retries=0, connect=lambda _: GuardedTransport(elsewhere))
    with pytest.raises(SuspectError, match="another host"):
        open_suspect(f"openai:{server.url}#m", queries=queries).outputs(["one"])
    assert server.requests == []


class Changing:
    """A resolver of an attacker's: public when it is checked, this machine when it is used."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    def __call__(self, host, port):
        self.asked += 1
        return [self.answers[min(self.asked, len(self.answers)) - 1]]


def test_a_name_that_changes_its_meaning_is_asked_at_the_address_that_was_checked(server):
    """Checked: 127.0.0.1, allowed by name. Then the name means 127.0.0.2, where nobody listens."""
    port = port_of(server)
    resolve = Changing("127.0.0.1", "127.0.0.2")
    policy = OutgoingPolicy(frozenset({f"suspect.example:{port}"}), resolve)

    ask(f"http://suspect.example:{port}/v1", policy)

    assert resolve.asked == 1
    assert server.requests[0][0]["Host"] == f"suspect.example:{port}"


def test_an_international_name_is_asked_under_the_form_it_has_on_the_wire(server):
    port, name = port_of(server), "xn--mnchen-3ya.example"
    policy = OutgoingPolicy(
        allowed=frozenset({f"{name}:{port}"}), resolve=Changing("127.0.0.1", "127.0.0.1")
    )
    ask(f"http://{name}:{port}/v1", policy)

    assert server.requests[0][0]["Host"] == f"{name}:{port}"


def test_rebinding_to_this_machine_reaches_nothing(server, monkeypatch):
    """Public at first, loopback afterwards: the system's own resolver is never asked again."""
    resolve = Changing(PUBLIC, "127.0.0.1")
    there = find_destination("http://suspect.example:8000/v1", OutgoingPolicy(resolve=resolve))
    tried = []

    def refuse(address, *arguments, **named):
        tried.append(address)
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with httpx.Client(transport=GuardedTransport(there)) as client:
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                client.get("http://suspect.example:8000/v1")

    assert tried == [(PUBLIC, 8000)] * 3
    assert resolve.asked == 1


def test_redirects_to_this_machine_lead_nowhere(server):
    with EndpointServer(simple_vectors) as inner:

        def redirect(handler, payload):
            handler.send_content(b"", status=307, location=f"{inner.url}/embeddings")
            return True

        policy = OutgoingPolicy(frozenset({f"127.0.0.1:{port_of(server)}"}))
        server.faults.append(redirect)
        with pytest.raises(SuspectError, match="redirects to"):
            ask(server.url, policy)

        server.faults.append(redirect)
        there = find_destination(server.url, policy)
        # Even a client that follows them does not get there.
        with (
            httpx.Client(transport=GuardedTransport(there), follow_redirects=True) as client,
            pytest.raises(SuspectError, match="another host"),
        ):
            client.post(f"{server.url}/embeddings", json={"input": ["one"]})

        assert len(server.requests) == 2
        assert inner.requests == []


def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    with EndpointServer(simple_vectors) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port_of(proxy)}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)

        ask(server.url, OutgoingPolicy(frozenset({f"127.0.0.1:{port_of(server)}"})))

        assert proxy.requests == []


def test_no_key_of_the_operators_is_sent(server, monkeypatch):
    """To this machine the client by itself would send it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-operators-own")
    open_suspect(f"openai:{server.url}#m", queries=QueryOptions(decoys=0)).outputs(["one"])
    assert "sk-operators-own" in str(server.requests[0][0])

    ask(server.url, OutgoingPolicy(frozenset({f"127.0.0.1:{port_of(server)}"})))

    assert "sk-operators-own" not in str(server.requests[1][0])


def test_nothing_is_asked_after_the_deadline(server):
    policy = OutgoingPolicy(frozenset({f"127.0.0.1:{port_of(server)}"}))

    def busy(handler, payload):
        time.sleep(1.0)
        handler.send_content(b"", status=503)
        return True

    server.faults.extend([busy] * 50)
    with pytest.raises(SuspectError, match="time allowed"):
        ask(
            server.url,
            policy,
            deadline=time.monotonic() + 3.0,
            retries=50,
            backoff_seconds=0.0,
        )
    assert 1 <= len(server.requests) <= 4


# --- TLS: the certificate is checked for the name, not for the address. ---


def make_certificate(folder, name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


class TlsServer(EndpointServer):
    def __init__(self, certificate):
        super().__init__(simple_vectors)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.names = []
        context.sni_callback = lambda sock, name, ctx: self.names.append(name)
        self.socket = context.wrap_socket(self.socket, server_side=True)


def test_tls_goes_by_the_name(tmp_path):
    certificate = make_certificate(tmp_path, "suspect.example")
    trusting = ssl.create_default_context(cafile=str(certificate))
    with TlsServer(certificate) as running:
        port = port_of(running)
        for name in ("suspect.example", "other.example"):
            policy = OutgoingPolicy(
                frozenset({f"{name}:{port}"}), lambda host, port: ["127.0.0.1"], trusting
            )
            url = f"https://{name}:{port}/v1"
            if name == "suspect.example":
                assert (ask(url, policy) == simple_vectors(["one", "two"])).all()
            else:
                with pytest.raises(SuspectError, match="certificate"):
                    ask(url, policy)
        distrusting = OutgoingPolicy(
            frozenset({f"suspect.example:{port}"}), lambda host, port: ["127.0.0.1"]
        )
        with pytest.raises(SuspectError, match="certificate"):
            ask(f"https://suspect.example:{port}/v1", distrusting)
        assert running.names[:2] == ["suspect.example", "other.example"]
        assert running.requests[0][0]["Host"] == f"suspect.example:{port}"
        assert len(running.requests) == 1


class Ipv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def test_ipv6_servers_are_reached_where_they_are_allowed():
    try:
        listening = Ipv6Server(("::1", 0), Handler)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    listening.faults, listening.requests, listening.lock = [], [], threading.Lock()
    listening.embed, listening.model_lock = simple_vectors, threading.Lock()
    listening.encodings = ("float", "base64")
    listening.under_way = listening.most_under_way = 0
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    try:
        port = port_of(listening)
        url = f"http://[::1]:{port}/v1"
        with pytest.raises(SuspectError, match="refused"):
            ask(url, OutgoingPolicy())
        assert len(ask(url, OutgoingPolicy(frozenset({f"[::1]:{port}"})))) == 2
    finally:
        listening.shutdown()
        listening.server_close()
