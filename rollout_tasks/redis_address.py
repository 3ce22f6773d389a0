"""Checks a Redis URL; messages say what is wrong without repeating it, because it contains a password."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

_LOOKS = "must look like redis://:password@host:6379/0"
_ESCAPES = "in a password, write # as %23, / as %2F, ? as %3F, @ as %40, [ as %5B"
_SCHEMES = frozenset({"redis", "rediss"})
_OPTIONS = ("ssl_",)
"""The options that a URL's query may set begin like this; Celery takes no others from it."""


def checked_redis_url(url: str) -> str:
    """Returns the URL, if it is valid.

    Raises:
        ValueError: It is not valid; says why, without repeating it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{_LOOKS}: its host or its port is none; {_ESCAPES}") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{_LOOKS}: it begins with none of {', '.join(f'{one}://' for one in sorted(_SCHEMES))}")
    if parts.fragment or parts.netloc.count("@") > 1 or not url.isprintable():
        raise ValueError(f"{_LOOKS}: it holds characters that must be escaped; {_ESCAPES}")
    if not parts.hostname or port == 0:
        raise ValueError(f"{_LOOKS}: its host or its port is missing; {_ESCAPES}")
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ValueError(f"{_LOOKS}: after the host comes the database's number; {_ESCAPES}")
    if not all(name.startswith(_OPTIONS) for name, _value in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError(f"{_LOOKS}: after a question mark only options of TLS may come (ssl_...); {_ESCAPES}")
    return url
