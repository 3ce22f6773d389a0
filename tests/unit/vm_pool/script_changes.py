"""What a script of the pool changes in Redis, as text: every key, with times and fences said relative to the script's own clock."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import redis

from vm_pool import lua_scripts
from vm_pool.pool import VMPool

SECOND = 1_000_000
OFFSETS = (0, 3, 5, 7, 20, 40, 100, 300, 900)
"""Seconds that the tests use; far enough apart that a slow machine mixes none up."""
_BIG = re.compile(r"\d{15,}")

State = dict[str, str]


class Recorder:
    """Runs scripts on a pool and says what changed."""

    def __init__(self, client: redis.Redis, pool: VMPool) -> None:
        self.client = client
        self.pool = pool
        self.prefix = pool.keys.prefix
        self.now = 0
        """The script's clock, in microseconds, of the last call that showed it."""
        self.reply: Any = None

    def run(self, script: str, *args: str | int) -> State:
        """Runs a script; returns what is different afterwards, with `-` for what is gone."""
        before, asked = self.state(), self._time()
        self.reply = lua_scripts.run(self.pool.redis, self.pool.keys, script, *args)
        answered, after = self._time(), self.state()
        changed = {name: after.get(name, "-") for name in {*before, *after} if before.get(name) != after.get(name)}
        self.now = self._now_of([*changed.values(), str(self.reply)], asked, answered) or self.now
        fences = {before[name]: "fence" for name in before if name.endswith(".fence")}
        self.reply = self._told(self.reply, fences)
        return {name: self._said(value, fences) for name, value in sorted(changed.items())}

    def state(self) -> State:
        """Every field of every key of the pool."""
        found: State = {}
        for key in self.client.scan_iter(f"{self.prefix}*", count=1000):
            name = key.removeprefix(f"{self.prefix}:")
            kind = self.client.type(key)
            if kind == "hash":
                found |= {f"{name}.{field}": value for field, value in self.client.hgetall(key).items()}
            elif kind == "zset":
                found |= {
                    f"{name}.{member}": f"{score:.0f}"
                    for member, score in self.client.zrange(key, 0, -1, withscores=True)
                }
            elif kind == "set":
                found[name] = " ".join(sorted(self.client.smembers(key)))
            elif kind == "list":
                found[name] = " | ".join(self.client.lrange(key, 0, -1))
            else:
                found |= {f"event {at}": fields["e"] for at, (_, fields) in enumerate(self.client.xrange(key))}
        return found

    def fence(self, vm: str) -> str:
        """A VM's fence as it is."""
        return str(self.client.hget(f"{self.prefix}:vm:{vm}", "fence"))

    def _time(self) -> int:
        seconds, microseconds = self.client.time()
        return int(seconds) * SECOND + int(microseconds)

    def _now_of(self, texts: Iterable[str], asked: int, answered: int) -> int | None:
        for number in (int(found) for text in texts for found in _BIG.findall(text)):
            for offset in OFFSETS:
                if asked <= number - offset * SECOND <= answered:
                    return number - offset * SECOND
        return None

    def _told(self, reply: Any, fences: dict[str, str]) -> Any:
        if isinstance(reply, list):
            return [self._told(part, fences) for part in reply]
        return self._said(str(reply), fences) if _BIG.search(str(reply)) else reply

    def _said(self, text: str, fences: dict[str, str]) -> str:
        def name(found: re.Match[str]) -> str:
            number = int(found.group())
            for known, called in fences.items():
                if 0 <= number - int(known) <= 4:
                    return called if str(number) == known else f"{called}+{number - int(known)}"
            seconds, rest = divmod(number - self.now, SECOND)
            if rest == 0 and seconds in OFFSETS:
                return "now" if seconds == 0 else f"now+{seconds}"
            return "then"

        return _BIG.sub(name, text)
