"""How a lease's holder gets through its VM's gate: a token that follows from the pool's secret and the gate's own name.

The first line of every connection is the token. Nothing secret stands in Redis: hosts and borrowers each make the token from what
they know anyway, the password of Redis, or `ROLLOUT_GATE_KEY` where they log into Redis by different names.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

VARIABLE = "ROLLOUT_GATE_KEY"
_PURPOSE = b"computer-use rollouts: gates of VMs"
_WORD = b"lease "
LINE_BYTES = len(_WORD) + 64 + 1
"""Of the line that a connection begins with."""


def key_of(password: str | None) -> bytes | None:
    """The key that tokens are made with; None where nobody has a secret: gates then let everybody in.

    Args:
        password: Of Redis; `ROLLOUT_GATE_KEY` in the environment goes before it.
    """
    secret = os.environ.get(VARIABLE) or password
    return hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256) if secret else None


def new_gate() -> str:
    """The name of a gate that is opened now; there is never another of that name."""
    return secrets.token_hex(16)


def token_of(key: bytes, gate: str) -> str:
    """What opens a gate."""
    return hmac.digest(key, gate.encode(), hashlib.sha256).hex()


def line_of(token: str) -> bytes:
    """What a connection begins with."""
    return _WORD + token.encode() + b"\n"


def opens(line: bytes, key: bytes, gate: str) -> bool:
    """Whether a connection's first line is the one for a gate."""
    return hmac.compare_digest(line, line_of(token_of(key, gate)))
