"""The login at a VM's gate: a token made from the pool's secret and the gate's name.

The first line of every connection is the token. Redis stores nothing secret: hosts and clients each make the token from
what they already know, the password of Redis, or `ROLLOUT_GATE_KEY` where they log into Redis under different names.
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
"""The length of a connection's first line."""


def key_of(password: str | None) -> bytes | None:
    """Returns the key that tokens are made with; None without a secret: gates then need no token.

    Args:
        password: Of Redis; `ROLLOUT_GATE_KEY` in the environment takes precedence.
    """
    secret = os.environ.get(VARIABLE) or password
    return hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256) if secret else None


def new_gate() -> str:
    """Returns a new name for a gate, which no other gate has or gets."""
    return secrets.token_hex(16)


def token_of(key: bytes, gate: str) -> str:
    """Returns the token that opens a gate."""
    return hmac.digest(key, gate.encode(), hashlib.sha256).hex()


def line_of(token: str) -> bytes:
    """Returns the first line of a connection."""
    return _WORD + token.encode() + b"\n"


def opens(line: bytes, key: bytes, gate: str) -> bool:
    """Whether a connection's first line has a gate's token."""
    return hmac.compare_digest(line, line_of(token_of(key, gate)))
