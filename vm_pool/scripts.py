"""The pool's Lua scripts: loaded once from `lua/`, called by name. Says how a call is put into words, not how it travels."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from vm_pool.redis_connection import REPLY_SECONDS, RedisConnection

_FOLDER = Path(__file__).parent / "lua"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VM_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

EVENTS_KEPT = 100_000
"""Events a pool's stream keeps, about, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic transition."""

    source: str
    sha: str


@lru_cache(maxsize=1)
def scripts() -> dict[str, Script]:
    """Every script by its file's name, the prelude in front of each."""
    prelude = (_FOLDER / "prelude.lua").read_text("utf-8")
    found = {}
    for path in sorted(_FOLDER.glob("*.lua")):
        if path.stem != "prelude":
            source = f"{prelude}\n{path.read_text('utf-8')}"
            found[path.stem] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324 (Redis names scripts so)
    return found


def microseconds(seconds: float) -> int:
    """Seconds as the scripts count them."""
    return round(seconds * 1_000_000)


class PoolKeys:
    """A pool's name in Redis, and its scripts' calls in words.

    Args:
        name: Letters, digits, ``_``, ``.`` and ``-``, at most 64.
        events_kept: About how many events the stream keeps.

    Raises:
        ValueError: The name is none.
    """

    def __init__(self, name: str, events_kept: int = EVENTS_KEPT) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a pool's name: use 1 to 64 letters, digits, '_', '.' and '-'")
        self.prefix = f"{{pool:{name}}}"
        self.events_kept = events_kept
        self._by_sha = {
            script: ("EVALSHA", found.sha, 1, self.prefix, events_kept) for script, found in scripts().items()
        }

    def command(self, script: str, *args: str | int) -> tuple[str | int, ...]:
        """The words that run a script the server has."""
        return (*self._by_sha[script], *args)

    def command_with_source(self, script: str, *args: str | int) -> tuple[str | int, ...]:
        """The words that run a script and make the server keep it."""
        return ("EVAL", scripts()[script].source, 1, self.prefix, self.events_kept, *args)

    def inbox(self, token: str) -> str:
        """Where a waiter's grant arrives."""
        return f"{self.prefix}:inbox:{token}"

    def work(self, host: str) -> str:
        """Where a host learns which of its VMs to look at."""
        return f"{self.prefix}:work:{host}"

    @property
    def images(self) -> str:
        """Which image each host's VMs are made from."""
        return f"{self.prefix}:images"

    @property
    def facts(self) -> str:
        """What is known of each image."""
        return f"{self.prefix}:facts"

    @property
    def events(self) -> str:
        """The event stream."""
        return f"{self.prefix}:events"


def checked_vm_id(vm_id: str) -> str:
    """A VM's id that may become part of a key.

    Raises:
        ValueError: It is none.
    """
    if not _VM_ID.fullmatch(vm_id):
        raise ValueError(f"{vm_id!r} is not a VM's id: use 1 to 128 letters, digits, '_', '.', ':' and '-'")
    return vm_id


def run(
    connection: RedisConnection, keys: PoolKeys, script: str, *args: str | int, seconds: float = REPLY_SECONDS
) -> Any:
    """Runs a script; sends its source when the server lost it.

    Raises:
        PoolUnreachable: Nothing came back; safe to repeat.
        PoolRefused: Redis answered with an error.
    """
    try:
        return connection.call(*keys.command(script, *args), seconds=seconds)
    except NoScriptError:
        return connection.call(*keys.command_with_source(script, *args), seconds=seconds)
