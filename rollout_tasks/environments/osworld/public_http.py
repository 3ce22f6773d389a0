"""Requests of desktop-env to anything that is no VM: to the internet alone, whatever a task or a redirect says, with limits."""

from __future__ import annotations

from typing import Any

import httpx
import requests

from rollout_tasks.environments.osworld.guest_http import LARGEST_FILE, UnusableAnswer
from rollout_tasks.settings import settings
from vm_pool.egress.http_transport import PublicTransport

MOST_REDIRECTS = 10


def request(method: str, url: str, *, timeout: tuple[float, float], **options: Any) -> requests.Response:
    """Sends one request, following redirects.

    Args:
        method: GET or POST.
        url: Of the internet, or of a host of `settings().trusted_hosts`.
        timeout: Seconds for connecting, and for silence.
        options: ``params``, ``headers``, ``json``, ``data`` (a form's fields or the body) and ``auth``, as `requests` takes them.

    Raises:
        UnusableAnswer: The answer is too large, or packed.
        requests.RequestException: There is none, or the address is not public; says which.
    """
    connect, silence = timeout
    asked = {name: options[name] for name in ("params", "json", "auth") if options.get(name) is not None}
    if (data := options.get("data")) is not None:
        asked["data" if isinstance(data, dict) else "content"] = data
    headers = {**(options.get("headers") or {}), "Accept-Encoding": "identity"}
    try:
        with (
            httpx.Client(
                transport=PublicTransport(settings().trusted_hosts),
                follow_redirects=True,
                max_redirects=MOST_REDIRECTS,
                timeout=httpx.Timeout(silence, connect=connect),
            ) as client,
            client.stream(method, url, headers=headers, **asked) as response,
        ):
            return _whole(response)
    except httpx.TimeoutException as error:
        raise requests.Timeout(f"{url}: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError(f"{url}: {error}") from error


def _whole(response: httpx.Response) -> requests.Response:
    packing = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in {"", "identity"}:
        raise UnusableAnswer(f"{response.url} answered in the encoding {packing[:50]!r}, which was not asked for")
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
    same.encoding = response.charset_encoding or "utf-8"
    same._content = bytes(body)
    return same
