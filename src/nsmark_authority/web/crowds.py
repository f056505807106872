"""How many of one address are there at once."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable

_MAX_REMEMBERED = 4096


class Crowd:
    """Counts who is there; for one thread."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many names somebody is there of."""
        return len(self._counts)

    @property
    def total(self) -> int:
        """How many there are in all."""
        return sum(self._counts.values())

    def enter(self, who: str) -> int:
        """Count one in; return how many of this name there are now."""
        count = self._counts.get(who, 0) + 1
        self._counts[who] = count
        return count

    def leave(self, who: str) -> None:
        """Count one out."""
        count = self._counts[who] - 1
        if count:
            self._counts[who] = count
        else:
            del self._counts[who]


class Uncounted:
    """Addresses and networks that may be as many as they like; ``*`` is everybody."""

    def __init__(self, hosts: Iterable[str]) -> None:
        hosts = tuple(hosts)
        self._is_everybody = "*" in hosts
        self._networks = tuple(network for host in hosts if (network := _network(host)) is not None)
        self._holds = functools.lru_cache(_MAX_REMEMBERED)(self._look_up)

    def __contains__(self, host: str) -> bool:
        """Return whether an address is one of them."""
        return self._is_everybody or self._holds(host)

    def _look_up(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return what was written as an address or a network; None if it is neither."""
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None
