"""How a model pool is stored in Redis: the name of its keys, the scripts that change them, and what may be stored there.

Each change is one script in lua/; lua/prelude.lua lists the keys. All times in them are the server's.
"""

from __future__ import annotations

import re
from pathlib import Path

from rollout_tasks.redis_client import LuaScripts

SCRIPTS = LuaScripts(Path(__file__).with_name("lua"))
LONGEST_TEXT = 512
"""Characters of a model's name, a weight version and the like."""
LONGEST_PATH = 4096
"""Characters of a checkpoint's folder or name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def pool_key(name: str) -> str:
    """Returns the prefix of a pool's keys.

    Raises:
        ValueError: The name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a model pool's name: use 1 to 64 letters, digits, '_', '.' and '-', a letter or digit first"
        )
    return f"{{models:{name}}}"


def checked_id(identity: str, what: str) -> str:
    """Returns an id after checking that it can be part of a key.

    Args:
        identity: The id.
        what: What it is the id of, as in "a replica's id".

    Raises:
        ValueError: It is not valid.
    """
    if not _ID.fullmatch(identity):
        raise ValueError(f"{identity!r} is not {what}: use 1 to 128 letters, digits, '_', '.', ':' and '-'")
    return identity


def checked_text(text: str, what: str, *, longest: int = LONGEST_TEXT) -> str:
    """Returns a text of one line after checking that it can be stored and shown.

    Args:
        text: The text.
        what: What it is, as in "a replica's model".
        longest: The most characters.

    Raises:
        ValueError: It is empty, too long, or has characters that cannot be shown.
    """
    if not 1 <= len(text) <= longest or not text.isprintable():
        raise ValueError(f"{what} must be 1 to {longest} printable characters, got {text[:80]!r}")
    return text
