"""Which addresses are on the internet: none of this machine's side, in whatever form they are written, whatever DNS says."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

import psutil

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Iterable[str]]
"""The addresses of a name; raises `OSError` when there are none."""

_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        # Beside what Python calls not global: what was reserved later or forwards elsewhere, and services of clouds.
        *(
            "0.0.0.0/8",
            "100.64.0.0/10",
            "168.63.129.16/32",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "224.0.0.0/3",
        ),
        *("::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7"),
        *("fe80::/9", "ff00::/8"),
    )
]
_IPV4_INSIDE = ((ipaddress.ip_network("64:ff9b::/96"), 0), (ipaddress.ip_network("2002::/16"), 80))
"""IPv6 networks whose addresses hold an IPv4 address, and how many bits come after it."""


class NotPublic(OSError):
    """There is no address that a guest may connect to; says for what."""


def is_public(text: str) -> bool:
    """Whether an address is one of the internet's, and not one of this machine's own.

    Args:
        text: As `socket` writes it; anything that is no address is not public.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return _is_public(address) and str(address) not in own_addresses()


def public_addresses(host: str, resolve: Resolve | None = None) -> list[str]:
    """The addresses of a host that may be connected to, in the order of preference.

    Args:
        host: A name, or an address.
        resolve: Asks DNS; default: as this machine does.

    Raises:
        NotPublic: It has none, or only others.
    """
    try:
        found = list((resolve or _resolve)(host))
    except (OSError, UnicodeError) as error:
        raise NotPublic(f"{host} has no address: {error}") from error
    public = [address for address in dict.fromkeys(found) if is_public(address)]
    if not public:
        raise NotPublic(f"{host} has no address on the internet")
    return public


@lru_cache(maxsize=1)
def own_addresses() -> frozenset[str]:
    """Those of this machine's interfaces: a public one leads to its own services, too."""
    found = (address.address.partition("%")[0] for some in psutil.net_if_addrs().values() for address in some)
    return frozenset(str(ipaddress.ip_address(text)) for text in found if _is_address(text))


def _is_public(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return False
        if address.ipv4_mapped is not None:
            return _is_public(address.ipv4_mapped)
        for network, after in _IPV4_INSIDE:
            if address in network:
                return _is_public(ipaddress.IPv4Address((int(address) >> after) & 0xFFFFFFFF))
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


def _resolve(host: str) -> list[str]:
    # The dot at the end keeps this machine's own domains, in which it looks names up, out of it.
    name = host if _is_address(host) else f"{host.rstrip('.')}."
    return [str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
