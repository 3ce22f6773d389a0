"""desktop-env's HTTP requests to anything but a VM: limited, and only to public hosts, even after a redirect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import httpx
import requests

from rollout_tasks.environments.osworld.guest_http import LARGEST_FILE, UnusableAnswer
from rollout_tasks.settings import settings
from vm_pool.egress.http_transport import opened


def request(
    method: str, url: str, *, timeout: tuple[float, float], hosts: Collection[str] | None = None, **options: Any
) -> requests.Response:
    """Sends one request, following redirects; from a cell, through the worker.

    Args:
        method: GET or POST.
        url: A URL of the internet, or of a host in `settings().trusted_hosts`.
        timeout: Seconds for connecting, and for silence.
        hosts: The only hosts that it may reach, redirects included; None: all of those.
        options: ``params``, ``headers``, ``json`` and ``data`` (a form's fields or the body), as `requests` takes them.

    Raises:
        UnusableAnswer: The answer is too large.
        requests.RequestException: No answer, a compressed one, or an address that is not public; the message says it.
    """
    if _elsewhere is not None:
        return _elsewhere(method, url, options)
    connect, silence = timeout
    request_options = {name: options[name] for name in ("params", "json") if options.get(name) is not None}
    if (data := options.get("data")) is not None:
        request_options["data" if isinstance(data, dict) else "content"] = data
    try:
        with opened(
            method,
            url,
            headers=options.get("headers"),
            timeout=httpx.Timeout(silence, connect=connect),
            trusted=settings().trusted_hosts,
            hosts=hosts,
            **request_options,
        ) as response:
            return _whole(response)
    except httpx.TimeoutException as error:
        raise requests.Timeout(f"{url}: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError(f"{url}: {error}") from error


def send_through(sender: Callable[[str, str, dict[str, Any]], requests.Response]) -> None:
    """Makes this process send its requests through another function from now on.

    Args:
        sender: Takes method, URL and options.
    """
    global _elsewhere
    _elsewhere = sender


_elsewhere: Callable[[str, str, dict[str, Any]], requests.Response] | None = None


def answer_of(status: int, url: str, headers: Mapping[str, str], body: bytes, reason: str = "") -> requests.Response:
    """Returns a complete answer in the form of `requests`."""
    same = requests.Response()
    same.status_code = status
    same.reason = reason
    same.url = url
    same.headers.update(headers)
    same.encoding = "utf-8"
    same._content, same._content_consumed = body, True
    return same


def _whole(response: httpx.Response) -> requests.Response:
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > LARGEST_FILE:
            raise UnusableAnswer(f"{response.url} answered with more than {LARGEST_FILE >> 20} MiB")
    return answer_of(response.status_code, str(response.url), response.headers, bytes(body), response.reason_phrase)
