"""Which addresses are public: not those of this machine or its networks, in any notation, whatever DNS answers."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import lru_cache
from threading import Thread

import psutil

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Iterable[str]]
"""Returns the addresses of a name; raises `OSError` when it has none."""

_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        # Besides what Python calls not global: ranges that were reserved later or forward elsewhere, cloud services.
        *(
            "0.0.0.0/8",
            "100.64.0.0/10",
            "168.63.129.16/32",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "224.0.0.0/3",
        ),
        *("2001::/23", "2001:db8::/32", "3fff::/20"),
    )
]
_GIVEN_OUT = ipaddress.ip_network("2000::/3")
"""The range of all public IPv6 addresses; addresses outside it have other meanings, or none yet."""
_IPV4_INSIDE = ((ipaddress.ip_network("64:ff9b::/96"), 0), (ipaddress.ip_network("2002::/16"), 80))
"""IPv6 networks whose addresses contain an IPv4 address, and how many bits follow it."""
LOOKUP_SECONDS = 20.0
"""For resolving a name: resolvers themselves may try several servers for minutes."""
OWN_SECONDS = 10.0
"""How long this machine's own addresses are cached; they may change at any time."""


class NotPublic(OSError):
    """A host has no address that may be connected to; the message names the host."""


class Unresolved(NotPublic):
    """DNS gave no address at all."""

    def __init__(self, sentence: str, *, for_now: bool) -> None:
        """`for_now`: whether a later lookup may succeed."""
        super().__init__(sentence)
        self.for_now = for_now


def is_public(text: str) -> bool:
    """Whether an address is public, and not one of this machine's own.

    Args:
        text: As `socket` writes it; anything that is not an address is not public.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return _is_public(address) and not {str(address), str(_inside(address))} & own_addresses()


def public_addresses(host: str, resolve: Resolve | None = None) -> list[str]:
    """Returns the addresses of a host that may be connected to, in order of preference.

    Args:
        host: A name, or an address.
        resolve: Resolves names; default: `resolved`.

    Raises:
        Unresolved: It has no address.
        NotPublic: None of its addresses is public.
    """
    try:
        found = list((resolve or resolved)(host))
    except (OSError, UnicodeError) as error:
        for_now = isinstance(error, TimeoutError) or (
            isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        )
        raise Unresolved(f"{host} has no address: {error}", for_now=for_now) from error
    public = [address for address in dict.fromkeys(found) if is_public(address)]
    if not public:
        raise NotPublic(f"{host} has no address on the internet")
    return public


def own_addresses() -> frozenset[str]:
    """Returns the addresses of this machine's interfaces: its services may also be reached at a public one."""
    return _own_addresses(int(time.monotonic() // OWN_SECONDS))


@lru_cache(maxsize=1)
def _own_addresses(_period: int) -> frozenset[str]:
    found = (address.address.partition("%")[0] for some in psutil.net_if_addrs().values() for address in some)
    return frozenset(str(ipaddress.ip_address(text)) for text in found if _is_address(text))


def _is_public(address: IPAddress) -> bool:
    inside = _inside(address)
    if inside is not address:
        return _is_public(inside)
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address not in _GIVEN_OUT):
        return False
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


def _inside(address: IPAddress) -> IPAddress:
    """Returns the IPv4 address that an IPv6 address wraps; otherwise the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and not address.scope_id:
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        for network, after in _IPV4_INSIDE:
            if address in network:
                return ipaddress.IPv4Address((int(address) >> after) & 0xFFFFFFFF)
    return address


def resolved(host: str, seconds: float = LOOKUP_SECONDS) -> list[str]:
    """Returns the addresses that this machine's resolver gives.

    Args:
        host: A name, or an address.
        seconds: How long it may take.

    Raises:
        TimeoutError: It takes longer.
        OSError: There are none.
        UnicodeError: It is no name.
    """
    if _is_address(host):
        return [host]
    answer: Future[list[str]] = Future()
    # A lookup cannot be ended, so its thread is left alone: the resolver gives up by itself.
    Thread(target=_look_up, args=(host, answer), name="lookup", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise TimeoutError("the resolver does not answer in time") from error


def _look_up(host: str, answer: Future[list[str]]) -> None:
    try:
        # The final dot stops this machine from adding its own search domains.
        rows = socket.getaddrinfo(f"{host.rstrip('.')}.", None, type=socket.SOCK_STREAM)
        answer.set_result([str(row[4][0]) for row in rows])
    except (OSError, ValueError) as error:
        answer.set_exception(error)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
