"""The HTTP client with which models and judges are asked, and the key that it sends."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from benchmark.deadline import with_deadlines

if TYPE_CHECKING:
    import httpx2


_SHORTEST_REAL_KEY = 16
"""Characters."""
_NO_KEY = "sk-no-key-required"
"""What llama.cpp's documentation has clients send; longer than some keys, and no secret."""
BAD_PROXY = "the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used"


class UnusableProxy(Exception):
    """A proxy that the environment names cannot be used; the message does not contain it, as it may have a password."""

    def __init__(self) -> None:
        super().__init__(BAD_PROXY)


def http_client(api_key: str, base_url: str) -> httpx2.Client:
    """Returns the `openai` package's HTTP client with its headers, except those that describe this machine.

    Requests for relative addresses go to the endpoint; gzip is the only encoding asked for; a `Deadline` is kept.

    Raises:
        UnusableProxy: A proxy's address is wrong, or of a kind that is not known here.
    """
    import httpx2  # both slow to import, and not needed by commands that ask no model
    import openai

    try:
        client = with_deadlines(openai.DefaultHttpxClient())
    except (ImportError, ValueError, httpx2.InvalidURL):
        raise UnusableProxy from None
    package = openai.OpenAI(api_key=api_key, base_url=base_url, http_client=client)
    for name, value in {**package.default_headers, **package.auth_headers}.items():
        if isinstance(value, str) and not name.startswith("X-Stainless-"):
            client.headers[name] = value
    client.headers["Accept-Encoding"] = "gzip"
    client.base_url = package.base_url
    return client


def without_key(text: str, key: str) -> str:
    """Returns a text in which an endpoint may have sent the key back, without it. To be cut only then: a part would stay.

    The key is found as it is, and with characters of it escaped as in JSON (also in JSON within JSON) or in a URL.
    """
    if not key:
        return text
    text = text.replace(key, "***").replace(json.dumps(key)[1:-1], "***")
    return _escaped(key).sub("***", text) if _may_be_escaped(text) else text


def without_real_key(reply: str, key: str) -> str:
    """Returns an endpoint's reply without the key, should it send that back; short keys are no secrets, but words like "none".

    JSON stays JSON.
    """
    if len(key) < _SHORTEST_REAL_KEY or key == _NO_KEY:
        return reply
    masked = without_key(reply, key)
    if masked == reply:
        return reply
    try:
        return json.dumps(_without_key_in(json.loads(reply), key), allow_nan=False)
    except (ValueError, RecursionError):
        return masked


def _without_key_in(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return without_key(value, key)
    if isinstance(value, list):
        return [_without_key_in(one, key) for one in value]
    if isinstance(value, dict):
        return {without_key(name, key): _without_key_in(one, key) for name, one in value.items()}
    return value


def _may_be_escaped(text: str) -> bool:
    """Returns whether a search for an escaped key, which is slow, is of use."""
    return any(mark in text for mark in ("\\u00", "\\/", "%"))


@lru_cache(maxsize=8)
def _escaped(key: str) -> re.Pattern[str]:
    """Returns a pattern of the key in which any character may be escaped."""
    return re.compile("".join(map(_maybe_escaped, key)))


def _maybe_escaped(character: str) -> str:
    """Returns a pattern of one character. JSON within JSON has several backslashes before it; no run of them is tried twice."""
    plain = character if character.isalnum() else rf"\\{{0,7}}+{re.escape(character)}"
    code = f"{ord(character):02x}"
    return rf"(?:{plain}|\\{{1,7}}+u00(?i:{code})|%(?i:{code}))"


def plain_key(key: str) -> str:
    """Returns a model's key without surrounding blanks.

    Raises:
        ValueError: It cannot be sent in a header; the message does not contain it.
    """
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError("contains characters that no key has, such as a line break or a curly quote")
    return key
