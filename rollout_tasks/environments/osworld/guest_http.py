"""HTTP requests to a guest. Answers are limited and not trusted: an agent may have replaced the guest's server.

Redirects are not followed, nothing is decompressed, no cookie is kept, and a body is limited in bytes and in time.
"""

from __future__ import annotations

import time
from typing import Any

import requests
import urllib3

LARGEST_ANSWER = 64 << 20
"""Bytes, except for files."""
LARGEST_FILE = 256 << 20
_FILES = frozenset({"/file", "/end_recording"})
_PIECE = 1 << 16


class UnusableAnswer(requests.RequestException):
    """An answer that is too large, or compressed although that was not requested."""


class GuestSession:
    """Connections to one guest, kept open between requests."""

    def __init__(self) -> None:
        self._session = requests.Session()
        self._session.trust_env = False

    def request(self, method: str, url: str, *, timeout: tuple[float, float], **options: Any) -> requests.Response:
        """Sends one request.

        Args:
            method: GET or POST.
            url: A URL of the guest.
            timeout: Seconds for connecting, and for silence; a whole body may take as long again.
            options: As for `requests.Request`; options of `requests` that only concern sending are ignored.

        Raises:
            UnusableAnswer: The answer is too large, or compressed.
            requests.RequestException: No answer came.
        """
        request_options = {name: value for name, value in options.items() if name in _OF_REQUESTS}
        prepared = self._session.prepare_request(requests.Request(method, url, **request_options))
        prepared.headers["Accept-Encoding"] = "identity"
        # Not `Session.send`: it reads redirects entirely, and decompresses them.
        response = self._session.get_adapter(url).send(prepared, stream=True, timeout=timeout)
        path = prepared.path_url.partition("?")[0]
        try:
            response._content = _body(response, path, time.monotonic() + 2 * timeout[1])
            response._content_consumed = True
        except BaseException as error:
            response.close()
            if isinstance(error, urllib3.exceptions.TimeoutError):
                raise requests.ReadTimeout(error, request=prepared) from error
            if isinstance(error, urllib3.exceptions.HTTPError):
                raise requests.ConnectionError(error, request=prepared) from error
            raise
        response.encoding = "utf-8"  # the headers may name anything, and guessing takes minutes
        return response

    def close(self) -> None:
        """Ends all connections."""
        self._session.close()


_OF_REQUESTS = frozenset({"headers", "files", "data", "json", "params", "auth"})


def _body(response: requests.Response, path: str, deadline: float) -> bytes:
    if 300 <= response.status_code < 400:
        response.close()
        return b""
    packing = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in {"", "identity"}:
        raise UnusableAnswer(f"{path} was answered in the encoding {packing[:50]!r}, which was not asked for")
    largest = LARGEST_FILE if path in _FILES else LARGEST_ANSWER
    body = bytearray()
    while piece := response.raw.read1(_PIECE, decode_content=False):
        body += piece
        if len(body) > largest:
            raise UnusableAnswer(f"{path} was answered with more than {largest >> 20} MiB")
        if time.monotonic() > deadline:
            raise requests.ReadTimeout(f"{path} was not answered to the end in time")
    response.raw.release_conn()
    return bytes(body)
