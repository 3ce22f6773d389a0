"""Checks a Redis URL; messages say what is wrong without repeating it, because it contains a password.

Its options of TLS are read here for Celery and Flower, so that they check the server's certificate exactly as our own
clients do: each of them reads a URL in its own way, and kombu by itself checks no certificate at all.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_LOOKS = "must look like redis://:password@host:6379/0"
_ESCAPES = "in a password, write # as %23, / as %2F, ? as %3F, @ as %40, [ as %5B"
_SCHEMES = frozenset({"redis", "rediss"})
_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_password",
)
"""The options that a URL's query may set: redis-py takes each of them as text."""
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_CERTIFICATE = ("required", "optional", "none")


def checked_redis_url(url: str) -> str:
    """Returns the URL, if it is valid.

    Raises:
        ValueError: It is not valid; says why, without repeating it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{_LOOKS}: its host or its port is not valid; {_ESCAPES}") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{_LOOKS}: it begins with none of {', '.join(f'{one}://' for one in sorted(_SCHEMES))}")
    if parts.fragment or parts.netloc.count("@") > 1 or not url.isprintable():
        raise ValueError(f"{_LOOKS}: it holds characters that must be escaped; {_ESCAPES}")
    if not parts.hostname or port == 0:
        raise ValueError(f"{_LOOKS}: its host or its port is missing; {_ESCAPES}")
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ValueError(f"{_LOOKS}: after the host comes the database's number; {_ESCAPES}")
    _check_options(parts.scheme, dict(parse_qsl(parts.query, keep_blank_values=True)))
    return url


def tls_options(url: str) -> dict[str, Any]:
    """Returns a valid URL's options of TLS for a redis-py connection; none without TLS. By default, it requires a certificate."""
    from redis.connection import parse_url  # here, because commands that need no Redis come here, too

    if urlsplit(url).scheme != "rediss":
        return {}
    return {"ssl_cert_reqs": "required"} | {
        name: value
        for name, value in parse_url(url).items()  # type: ignore[no-untyped-call]
        if name.startswith("ssl_")
    }


def without_options(url: str) -> str:
    """Returns a URL without the options in its query."""
    return url.partition("?")[0]


def _check_options(scheme: str, options: dict[str, str]) -> None:
    if any(name not in _OPTIONS for name in options):
        raise ValueError(
            f"{_LOOKS}: after a question mark only options of TLS may come ({', '.join(_OPTIONS)}); {_ESCAPES}"
        )
    if options and scheme != "rediss":
        raise ValueError(f"{_LOOKS}: options of TLS (ssl_...) need rediss:// instead of {scheme}://")
    if options.get("ssl_cert_reqs", "required") not in _CERTIFICATE:
        raise ValueError(f"its ssl_cert_reqs is not one of {', '.join(_CERTIFICATE)}")
    if unreadable := [name for name in _FILES if name in options and not os.access(options[name], os.R_OK)]:
        raise ValueError(f"its {unreadable[0]} does not name a file that can be read here")
