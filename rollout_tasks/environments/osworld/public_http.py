"""Requests of desktop-env to anything that is no VM: to the internet alone, whatever a task or a redirect says, with limits."""

from __future__ import annotations

from typing import Any

import httpx
import requests

from rollout_tasks.environments.osworld.guest_http import LARGEST_FILE, UnusableAnswer
from rollout_tasks.settings import settings
from vm_pool.egress.http_transport import opened


def request(method: str, url: str, *, timeout: tuple[float, float], **options: Any) -> requests.Response:
    """Sends one request, following redirects.

    Args:
        method: GET or POST.
        url: Of the internet, or of a host of `settings().trusted_hosts`.
        timeout: Seconds for connecting, and for silence.
        options: ``params``, ``headers``, ``json`` and ``data`` (a form's fields or the body), as `requests` takes them.

    Raises:
        UnusableAnswer: The answer is too large.
        requests.RequestException: There is none, it is packed, or an address is not public; says which.
    """
    connect, silence = timeout
    asked = {name: options[name] for name in ("params", "json") if options.get(name) is not None}
    if (data := options.get("data")) is not None:
        asked["data" if isinstance(data, dict) else "content"] = data
    try:
        with opened(
            method,
            url,
            headers=options.get("headers"),
            timeout=httpx.Timeout(silence, connect=connect),
            trusted=settings().trusted_hosts,
            **asked,
        ) as response:
            return _whole(response)
    except httpx.TimeoutException as error:
        raise requests.Timeout(f"{url}: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError(f"{url}: {error}") from error


def _whole(response: httpx.Response) -> requests.Response:
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > LARGEST_FILE:
            raise UnusableAnswer(f"{response.url} answered with more than {LARGEST_FILE >> 20} MiB")
    same = requests.Response()
    same.status_code = response.status_code
    same.reason = response.reason_phrase
    same.url = str(response.url)
    same.headers.update(response.headers)
    same.encoding = "utf-8"
    same._content, same._content_consumed = bytes(body), True
    return same
