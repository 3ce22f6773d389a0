"""An HTTP transport that only reaches the internet: for URLs that a task or a page chooses, and not this machine.

A name is resolved once for each request, redirects included, and the connection goes to the address that was checked:
changing the name's address a moment later has no effect. A proxy, where the environment names one, resolves names
itself: what it may reach is for its owner to decide.
"""

from __future__ import annotations

import logging
import re
import ssl
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import httpx

from vm_pool.egress.addresses import Resolve, Unresolved, public_addresses

MOST_REDIRECTS = 10
# Its lines would have the whole address of each request, which may be a secret, and is a stranger's words.
logging.getLogger("httpx").setLevel(logging.WARNING)

_BAD_PROXY = "the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used"
_PORTS = {"http": 80, "https": 443}
_INTERNET_NAME = re.compile(r"([a-z0-9_-]{1,63}\.)+(?!0x)(?=[a-z0-9_-]*[a-z])[a-z0-9_-]{1,63}")
_NO_INTERNET = ("localhost", "local", "internal", "localdomain", "home.arpa")
"""Domains that no internet name is in."""


@contextmanager
def opened(
    method: str,
    url: str,
    *,
    timeout: httpx.Timeout,
    trusted: Collection[str] = (),
    hosts: Collection[str] | None = None,
    before_each: Callable[[httpx.URL], object] | None = None,
    transport: PublicTransport | None = None,
    **sent: Any,
) -> Iterator[httpx.Response]:
    """Sends a request that may only reach the internet, redirects included; does not read the redirects' bodies.

    Args:
        method: Of the first request.
        url: Its address.
        timeout: For connecting, and for silence.
        trusted: See `PublicTransport`.
        hosts: The only hosts that it may reach, redirects included, in lower case; None: all of the internet.
        before_each: Called with the address of each request, redirects included; what it raises ends them.
        transport: Sends the requests, and is closed; default: one that trusts `trusted`.
        sent: Other arguments of `httpx.Client.build_request`.

    Yields:
        The answer, with only its headers read. Its body is as sent: compression is neither requested nor accepted.

    Raises:
        NotPublic: A host has no public address and is not trusted; the message names it.
        httpx.HTTPError: It cannot be sent, nothing comes back, there are too many redirects, one leads to another host, or
            the body is compressed.
        httpx.InvalidURL: The URL is not valid.
    """
    with httpx.Client(transport=transport or PublicTransport(trusted), timeout=timeout) as client:
        request = client.build_request(method, url, **sent)
        request.headers["Accept-Encoding"] = "identity"
        for _ in range(MOST_REDIRECTS + 1):
            if hosts is not None and {_host(request.url), request.url.host}.isdisjoint(hosts):
                raise httpx.RequestError(f"it leads to {request.url.host}, which it may not", request=request)
            if before_each is not None:
                before_each(request.url)
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
    """Sends requests to public addresses, and to trusted hosts at any address."""

    def __init__(
        self,
        trusted: Collection[str] = (),
        resolve: Resolve | None = None,
        made: Callable[[httpx.HTTPTransport], object] = lambda _transport: None,
    ) -> None:
        """Does not connect yet.

        Args:
            trusted: Hosts, as ``name`` or ``name:port`` in lower case, that may have any address.
            resolve: Resolves names; default: as this machine does.
            made: Called with each transport that connections are made with, before its first use.
        """
        self._trusted = frozenset(trusted)
        self._resolve = resolve
        # A kept-alive connection would be reused for another name at this address, whose certificate was not checked.
        self._direct = httpx.HTTPTransport(verify=_authorities(), limits=httpx.Limits(max_keepalive_connections=0))
        self._made = made
        made(self._direct)
        self._proxies: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request.

        Raises:
            NotPublic: Its host has no public address and is not trusted; the message names the host.
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
            return self._through(proxy).handle_request(request)  # only the proxy can resolve names here
        if proxy:
            return self._through(proxy).handle_request(request)
        return self._send_to(addresses, request)

    def _send_to(self, addresses: list[str], request: httpx.Request) -> httpx.Response:
        """Sends to the first address that accepts a connection; the certificate must still be the name's."""
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
                self._proxies[proxy] = httpx.HTTPTransport(verify=_authorities(), proxy=proxy)
                self._made(self._proxies[proxy])
            except (
                ImportError,
                ValueError,
                httpx.InvalidURL,
            ):  # which may have a part of its password in their message
                raise httpx.UnsupportedProtocol(_BAD_PROXY) from None
        return self._proxies[proxy]

    def close(self) -> None:
        """Ends all connections."""
        for transport in (self._direct, *self._proxies.values()):
            transport.close()


@lru_cache(maxsize=1)
def _authorities() -> ssl.SSLContext:
    """Returns whom this process trusts to sign certificates; reading the list takes longer than many a request."""
    return httpx.create_ssl_context()


def _sent_to(address: str, request: httpx.Request) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": _host(request.url)},
    )


def _host(url: httpx.URL) -> str:
    """Returns the host as DNS and certificates name it."""
    return url.raw_host.decode("ascii").rstrip(".")


def _may_be_public(host: str) -> bool:
    """Whether a name that only a proxy can resolve may be public: not one of its own network, and not a number."""
    return bool(_INTERNET_NAME.fullmatch(host)) and not any(
        f".{host}".endswith(f".{domain}") for domain in _NO_INTERNET
    )


def _proxy_of(url: httpx.URL) -> str:
    """Returns the proxy that the environment names for a URL; empty when it names none."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all", "")
    if not proxy or urllib.request.proxy_bypass(_host(url)):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
