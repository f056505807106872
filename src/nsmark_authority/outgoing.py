"""Requests to suspects that strangers name: to public addresses only, and only to those checked.

Whoever enters a dispute decides which URL this machine asks. So a URL must not lead into the
network the authority runs in, nor to a service that speaks something else than HTTP:

* the host's name is resolved once, every address it has must be public and none of this machine's
  own, and all connections go to the address that was checked: a name that means something else a
  second later changes nothing;
* TLS certificates and the ``Host`` header still go by the name;
* ports are 80, 443 and 8000 to 8999, where inference servers listen;
* another host than the one named is never asked, so a redirect leads nowhere;
* no proxy of the environment, no user name in the URL, no API key of the operator's.

The operator can allow ``host:port`` pairs that break these rules, such as a model in his own rooms.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import httpx

from nsmark.errors import ConfigError, SuspectError

Address = IPv4Address | IPv6Address
OwnAddress = Callable[[Address], bool]
Resolver = Callable[[str, int], Sequence[str]]
"""Host and port → addresses, as text; raises OSError where there are none."""

PUBLIC_PORTS = frozenset({80, 443, *range(8000, 9000)})

_MAX_URL = 2000
_MAX_ADDRESSES = 64
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# The last label of a name is never a number: what ends in one is an address, however it is spelt.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE_NAMES = (
    "localhost",
    "local",
    "internal",
    "localdomain",
    "lan",
    "home",
    "corp",
    "intranet",
    "private",
    "onion",
    "arpa",
)
# Written out: what ``ipaddress`` calls global differs between releases of Python.
_REFUSED = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "this machine itself"),
        ("168.63.129.16/32", "a cloud's own service"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("2001::/23", "reserved, or another address in disguise"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "another address in disguise"),
        ("3fff::/20", "reserved"),
    )
)
# For documentation: no machine has them.
_NOBODYS = {4: "192.0.2.1", 6: "2001:db8::1"}
# All else in IPv6 is private, link-local, multicast, reserved or an IPv4 address in disguise.
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")


def system_addresses(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_own_address(address: Address) -> bool:
    """Return whether an address is this machine's: only those can be bound.

    Public ones, too: what listens there may let in those who are on the machine. Where the system
    lets any address be bound, this says nothing. An address that a router in front of this machine
    keeps for it is not known here.
    """
    return _can_bind(str(address), address.version) and not _can_bind(
        _NOBODYS[address.version], address.version
    )


def _can_bind(address: str, version: int) -> bool:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class OutgoingPolicy:
    """Where requests may go."""

    allowed: frozenset[str] = frozenset()
    """``host:port`` pairs that the operator vouches for, an IPv6 address in brackets."""
    resolve: Resolver = field(default=system_addresses, compare=False, repr=False)
    tls: ssl.SSLContext | None = field(default=None, compare=False, repr=False)
    """Whose certificates are trusted; None: what the system trusts."""
    is_own: OwnAddress = field(default=is_own_address, compare=False, repr=False)
    """Which addresses are those of the machine that asks."""

    def __post_init__(self) -> None:
        for entry in self.allowed:
            try:
                parts = urlsplit(f"//{entry}")
                is_pair = bool(parts.hostname) and parts.port is not None and parts.netloc == entry
            except ValueError:
                is_pair = False
            if not is_pair or entry != entry.lower() or "@" in entry:
                raise ConfigError("allowed suspects", entry, "must be host:port, in lower case")

    def allows(self, host: str, port: int) -> bool:
        """Return whether the operator vouches for a host and port."""
        return f"[{host}]:{port}" in self.allowed or f"{host}:{port}" in self.allowed


@dataclass(frozen=True, slots=True)
class Destination:
    """A host whose address was checked."""

    scheme: str
    host: str
    port: int
    address: Address


def check_url(url: str, policy: OutgoingPolicy) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL that may be asked by its form; nothing is resolved.

    Raises:
        SuspectError: No such URL.
    """
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise _refused("it is too long or holds characters that no URL has")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _refused("it cannot be read") from error
    if parts.scheme not in ("http", "https") or not host:
        raise _refused("it is no http or https URL")
    if "@" in parts.netloc:
        raise _refused("it holds a user name or password")
    if "\\" in url or ("[" in parts.netloc and ":" not in host):
        raise _refused("other programs may read another host in it")
    port = port if port is not None else {"http": 80, "https": 443}[parts.scheme]
    if policy.allows(host, port):
        return parts.scheme, host, port
    if port not in PUBLIC_PORTS:
        raise _refused(f"port {port} is none of 80, 443 and 8000 to 8999")
    literal = _literal(host)
    if literal is not None:
        _require_public(literal)
    elif not _NAME.fullmatch(host) or len(host) > 253:
        raise _refused("its host is no name and no address")
    elif "." not in host or host.rsplit(".", 1)[-1] in _PRIVATE_NAMES:
        raise _refused("its host is a name of a private network")
    return parts.scheme, host, port


def find_destination(url: str, policy: OutgoingPolicy) -> Destination:
    """Resolve the host of a URL, once, and check every address that it has.

    Raises:
        SuspectError: The URL may not be asked, its host is not known, or leads to an address that
            is not public, or is this machine's.
    """
    scheme, host, port = check_url(url, policy)
    is_vouched = policy.allows(host, port)
    literal = _literal(host)
    if literal is not None:
        if not is_vouched:
            _require_elsewhere(literal, policy)
        return Destination(scheme, host, port, literal)
    try:
        found = [ipaddress.ip_address(each) for each in policy.resolve(host, port)]
    except (OSError, ValueError) as error:  # UnicodeError, which resolvers raise, is a ValueError
        raise SuspectError(f"the host {host} is not known", "check the URL") from error
    if not found or len(found) > _MAX_ADDRESSES:
        raise SuspectError(f"the host {host} has no usable address", "check the URL")
    if not is_vouched:
        for address in found:
            _require_public(address)
            _require_elsewhere(address, policy)
    # IPv4 first: not every machine can reach the other kind, and only one address is tried.
    return Destination(scheme, host, port, min(found, key=lambda address: address.version))


class GuardedTransport(httpx.BaseTransport):
    """Sends requests for one destination to the address that was checked, and no others."""

    def __init__(
        self,
        destination: Destination,
        policy: OutgoingPolicy | None = None,
        deadline: float | None = None,
    ) -> None:
        """Prepare connections.

        Args:
            destination: From :func:`find_destination`.
            policy: Whose certificates are trusted.
            deadline: On the clock of :func:`time.monotonic`: no request begins after it.
        """
        self._destination, self._deadline = destination, deadline
        tls = policy.tls if policy is not None else None
        # A transport made by hand uses no proxy of the environment.
        self._inner = httpx.HTTPTransport(verify=tls or ssl.create_default_context(), retries=0)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        there = self._destination
        url = request.url
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
        # As it is written on the wire: ``url.host`` shows international names in their own script.
        host = url.raw_host.decode("ascii").lower()
        if (url.scheme, host, port) != (there.scheme, there.host, there.port):
            raise _refused("it leads to another host than the one that was checked")
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise SuspectError(
                f"{there.host} was not done answering in the time allowed",
                "ask for more time, or fewer texts",
            )
        headers = request.headers.copy()
        # A key of the operator's is not for whoever a stranger names.
        headers.pop("authorization", None)
        headers.pop("cookie", None)
        # Under the address no resolver is asked again; the certificate is checked for the name.
        extensions = request.extensions
        if there.scheme == "https" and _literal(there.host) is None:
            extensions = {**extensions, "sni_hostname": there.host}
        pinned = httpx.Request(
            request.method,
            url.copy_with(host=str(there.address)),
            headers=headers,
            stream=request.stream,
            extensions=extensions,
        )
        return self._inner.handle_request(pinned)

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()


def _literal(host: str) -> Address | None:
    """Return the address that a host is, None if it is a name.

    Raises:
        SuspectError: It is an address, but not in the usual form: other programs read
            ``2130706433``, ``0x7f.1`` and ``0177.0.0.1`` as 127.0.0.1.
    """
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError as error:
            raise _refused("its host is no address") from error
        if address.scope_id is not None:
            raise _refused("its address names an interface of this machine")
        return address
    if not _NUMBER.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        return None
    try:
        return ipaddress.IPv4Address(host)
    except ValueError as error:
        raise _refused("its address is not written as four decimal numbers") from error


def _require_public(address: Address) -> None:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
        raise _refused("its address is not public: private, reserved or another one in disguise")
    for network, what in _REFUSED:
        if address.version == network.version and address in network:
            raise _refused(f"its address is not public: {what}")


def _require_elsewhere(address: Address, policy: OutgoingPolicy) -> None:
    if policy.is_own(address):
        raise _refused("its address is one of this machine itself")


def _refused(why: str) -> SuspectError:
    # The URL itself is not repeated: it may hold a password.
    return SuspectError(
        f"the suspect's URL is refused: {why}",
        "give a public http or https URL; the authority's operator can allow others by host:port",
    )
