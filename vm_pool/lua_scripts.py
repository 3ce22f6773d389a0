"""Lua scripts for Redis: a folder of them, and the pool's (`lua/`), called by name. `redis_connection` sends the commands."""

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
"""About how many events a pool's stream keeps by default."""


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic operation."""

    source: str
    sha: str


@lru_cache(maxsize=8)
def scripts(folder: Path = _FOLDER) -> dict[str, Script]:
    """Returns a folder's scripts by their files' names; if it has a ``prelude.lua``, each has that in front."""
    sources = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.lua"))}
    prelude = sources.pop("prelude", None)
    if prelude is not None:
        sources = {name: f"{prelude}\n{source}" for name, source in sources.items()}
    # Redis names scripts by this hash.
    return {name: Script(source, hashlib.sha1(source.encode()).hexdigest()) for name, source in sources.items()}  # noqa: S324


def microseconds(seconds: float) -> int:
    """Converts seconds to the scripts' unit."""
    return round(seconds * 1_000_000)


class PoolKeys:
    """A pool's keys in Redis, and the commands that call its scripts.

    Args:
        name: Letters, digits, ``_``, ``.`` and ``-``, at most 64.
        events_kept: About how many events the stream keeps.

    Raises:
        ValueError: The name is not valid.
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
        """Returns the command that runs a script that the server has."""
        return (*self._by_sha[script], *args)

    def command_with_source(self, script: str, *args: str | int) -> tuple[str | int, ...]:
        """Returns the command that runs a script and makes the server keep it."""
        return ("EVAL", scripts()[script].source, 1, self.prefix, self.events_kept, *args)

    def inbox(self, token: str) -> str:
        """Returns the key of a waiter's inbox, where its grant arrives."""
        return f"{self.prefix}:inbox:{token}"

    def work(self, host: str) -> str:
        """Returns the key of a host's work list, which says which of its VMs to look at."""
        return f"{self.prefix}:work:{host}"

    @property
    def images(self) -> str:
        """The key that says which image each host's VMs are made from."""
        return f"{self.prefix}:images"

    @property
    def facts(self) -> str:
        """The key of what is known of each image."""
        return f"{self.prefix}:facts"

    @property
    def events(self) -> str:
        """The key of the event stream."""
        return f"{self.prefix}:events"


def checked_vm_id(vm_id: str) -> str:
    """Returns a VM's id after checking that it can be part of a key.

    Raises:
        ValueError: The id is not valid.
    """
    if not _VM_ID.fullmatch(vm_id):
        raise ValueError(f"{vm_id!r} is not a VM's id: use 1 to 128 letters, digits, '_', '.', ':' and '-'")
    return vm_id


def run(
    connection: RedisConnection, keys: PoolKeys, script: str, *args: str | int, seconds: float = REPLY_SECONDS
) -> Any:
    """Runs a script; sends its source if the server does not have it.

    Raises:
        PoolUnreachable: No reply came; safe to repeat.
        PoolRefused: Redis answered with an error.
    """
    try:
        return connection.call(*keys.command(script, *args), seconds=seconds)
    except NoScriptError:
        return connection.call(*keys.command_with_source(script, *args), seconds=seconds)
