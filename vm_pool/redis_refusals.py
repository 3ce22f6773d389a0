"""Distinguishes a Redis that refuses only for now from one that refuses the request, or the login, or is not to be trusted.

Out of memory, a replica that was not promoted yet, loading its data, cut off from its replicas or its disk: such a
server answers each write with its own error code, and recovers without any action here.
"""

from __future__ import annotations

import re
import ssl

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

_CODES = "OOM|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING|BUSY"
_CODED = re.compile(rf"(?:^|: -?)(?:{_CODES}) ")
"""Finds an error's code: at its beginning, or, before Redis 7, after the error's position in a script."""
_LOGIN_CODES = ("NOAUTH", "WRONGPASS")


def refused_login(error: BaseException, where: str) -> str:
    """Returns a sentence if an error says that Redis refuses the login; empty for any other error."""
    refused = isinstance(error, (AuthenticationError, AuthorizationError))
    if not refused and not (isinstance(error, RedisError) and any(code in str(error) for code in _LOGIN_CODES)):
        return ""
    return f"Redis at {where} refuses the login: check the user and the password in its URL, REDIS_URL by default ({error})"


def untrusted(error: BaseException, where: str) -> str:
    """Returns a sentence if an error says that Redis's certificate is not to be trusted; empty for any other error."""
    cause: BaseException | None = error
    while isinstance(cause, RedisError):  # it is what redis-py's own error was made of
        cause = cause.__cause__ or cause.__context__
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return ""
    return (
        f"Redis at {where} is not trusted ({cause.verify_message.rstrip('.')}): if it is yours, name the file of the authority"
        " that signed its certificate in its URL, as in rediss://:password@host:6379/0?ssl_ca_certs=FILE"
    )


def passing_refusal(error: ResponseError) -> str:
    """Returns the message, with its code, of an error that says Redis refuses for now; empty for any other error."""
    code = getattr(error, "status_code", None)
    sentence = f"{code} {error}" if code and not str(error).startswith(code) else str(error)
    return sentence.rstrip(".") if _CODED.search(sentence) else ""
