"""HTTP that reaches the internet alone: for addresses that a task or a page names, and that this machine did not choose.

What a name means is looked up once for each request, redirects included, and the connection goes to the address that was
checked: a name that means another address a moment later gains nothing. A proxy, where the environment names one, looks
names up by itself: what it may reach is its owner's to say.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from vm_pool.egress.addresses import Resolve, Unresolved, public_addresses

MOST_REDIRECTS = 10
_PORTS = {"http": 80, "https": 443}
_INTERNET_NAME = re.compile(r"([a-z0-9_-]{1,63}\.)+(?!0x)(?=[a-z0-9_-]*[a-z])[a-z0-9_-]{1,63}")
_NO_INTERNET = ("localhost", "local", "internal", "localdomain", "home.arpa")
"""Domains that no name of the internet is in."""


@contextmanager
def opened(
    method: str, url: str, *, timeout: httpx.Timeout, trusted: Collection[str] = (), **sent: Any
) -> Iterator[httpx.Response]:
    """The answer to a request that goes to the internet alone, redirects included; nothing of a redirect's body is read.

    Args:
        method: Of the first request.
        url: Its address.
        timeout: For connecting, and for silence.
        trusted: See `PublicTransport`.
        sent: What else `httpx.Client.build_request` takes.

    Yields:
        The answer, of which nothing but the headers was read. Its body is as sent: nothing packed is asked for, or taken.

    Raises:
        NotPublic: A host has no public address and is not trusted; says which.
        httpx.HTTPError: It cannot be sent, nothing comes back, too many redirects come, or it is packed.
        httpx.InvalidURL: That is no address.
    """
    with httpx.Client(transport=PublicTransport(trusted), timeout=timeout) as client:
        request = client.build_request(method, url, **sent)
        request.headers["Accept-Encoding"] = "identity"
        for _ in range(MOST_REDIRECTS + 1):
            response = client.send(request, stream=True)
            if response.next_request is None:
                break
            response.close()
            request = response.next_request
        else:
            raise httpx.TooManyRedirects(f"more than {MOST_REDIRECTS} redirects", request=request)
        try:
            packing = response.headers.get("Content-Encoding", "identity").strip().lower()
            if packing not in {"", "identity"}:
                raise httpx.DecodingError(f"it is packed as {packing[:50]!r}, which was not asked for", request=request)
            yield response
        finally:
            response.close()


class PublicTransport(httpx.BaseTransport):
    """Sends requests to public addresses, and to hosts that are trusted all the same."""

    def __init__(self, trusted: Collection[str] = (), resolve: Resolve | None = None) -> None:
        """Connects to nothing yet.

        Args:
            trusted: Hosts, as ``name`` or ``name:port`` in lower case, that may have any address.
            resolve: Asks DNS; default: as this machine does.
        """
        self._trusted = frozenset(trusted)
        self._resolve = resolve
        # A connection that stayed open to an address would be taken for another name there, whose certificate was never seen.
        self._direct = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        self._proxies: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request.

        Raises:
            NotPublic: Its host has no public address and is not trusted; says which host.
            httpx.TransportError: It cannot be sent, or nothing comes back.
        """
        if request.url.scheme not in _PORTS:
            raise httpx.UnsupportedProtocol(f"{request.url}: only http and https are sent")
        host = _host(request.url)
        proxy = _proxy_of(request.url)
        if self._trusts(request.url):
            return self._through(proxy).handle_request(request)
        try:
            addresses = public_addresses(host, self._resolve)
        except Unresolved:
            if not proxy or not _may_be_public(host):
                raise
            return self._through(proxy).handle_request(request)  # only the proxy can look names up here
        if proxy:
            return self._through(proxy).handle_request(request)
        return self._send_to(addresses, request)

    def _send_to(self, addresses: list[str], request: httpx.Request) -> httpx.Response:
        """To the first address that can be connected to; the certificate must be the name's all the same."""
        *others, last = addresses
        for address in others:
            try:
                return self._direct.handle_request(_sent_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return self._direct.handle_request(_sent_to(last, request))

    def _trusts(self, url: httpx.URL) -> bool:
        host = _host(url)
        name = f"[{host}]" if ":" in host else host
        return not self._trusted.isdisjoint({host, name, f"{name}:{url.port or _PORTS[url.scheme]}"})

    def _through(self, proxy: str) -> httpx.HTTPTransport:
        if not proxy:
            return self._direct
        if proxy not in self._proxies:
            try:
                self._proxies[proxy] = httpx.HTTPTransport(proxy=proxy)
            except (ImportError, ValueError) as error:
                raise httpx.UnsupportedProtocol(
                    f"the proxy that the environment names is of no use: {error}"
                ) from error
        return self._proxies[proxy]

    def close(self) -> None:
        """Ends all connections."""
        for transport in (self._direct, *self._proxies.values()):
            transport.close()


def _sent_to(address: str, request: httpx.Request) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": _host(request.url)},
    )


def _host(url: httpx.URL) -> str:
    """As it is asked for in DNS, and named in certificates."""
    return url.raw_host.decode("ascii").rstrip(".")


def _may_be_public(host: str) -> bool:
    """Whether a name that only a proxy can look up may be one of the internet: not one of its own network, nor a number."""
    return bool(_INTERNET_NAME.fullmatch(host)) and not any(f".{host}".endswith(f".{own}") for own in _NO_INTERNET)


def _proxy_of(url: httpx.URL) -> str:
    """The proxy that the environment names for a URL; empty: none."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all", "")
    if not proxy or urllib.request.proxy_bypass(_host(url)):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
