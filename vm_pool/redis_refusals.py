"""Tells a Redis that does nothing just now from one that will not do what it is asked for.

Out of memory, a replica that nobody has promoted yet, loading its data, cut off from its replicas or its disk: such a server
answers each write with an error of its own, and will be well again without anybody here doing anything.
"""

from __future__ import annotations

import re

from redis.exceptions import ResponseError

_CODES = "OOM|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING|BUSY"
_CODED = re.compile(rf"(?:^|: -?)(?:{_CODES}) ")
"""Where an answer names its code: at its beginning, or before Redis 7 behind where in a script the error was."""


def passing_refusal(error: ResponseError) -> str:
    """The sentence of an answer that says that Redis does nothing just now, with its code; empty for any other answer."""
    code = getattr(error, "status_code", None)
    sentence = f"{code} {error}" if code and not str(error).startswith(code) else str(error)
    return sentence.rstrip(".") if _CODED.search(sentence) else ""
