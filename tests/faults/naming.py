"""What a request to Redis is called in the list of points, whatever ids it carries, and what it may do there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from celery.backends import redis as chords
from kombu.transport import redis as broker
from redis.lock import Lock

import rollout_tasks
from rollout_tasks.runs import reconcile
from tests.faults.resp import Command
from vm_pool.lua_scripts import scripts as pool_scripts

HANDSHAKE = frozenset({"HELLO", "AUTH", "CLIENT", "SELECT"})
BLOCKING = frozenset({"BRPOP", "BLPOP", "BLMOVE", "BZPOPMIN", "XREAD"})
_WITHOUT_KEY = frozenset({"PING", "INFO", "TIME", "MULTI", "EXEC", "COMMAND", "CONFIG", "ROLE", "WAIT", "QUIT"})
_IDS = (
    (re.compile(r"\{run:[^}]*\}"), "{run}"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "*"),
    (re.compile(r"[0-9a-f]{16,}"), "*"),
    (re.compile(r"@[\w.-]+"), "@*"),
    (re.compile(r"^rollout\.\w+$"), "rollout.*"),
)
_SCRIPTS = {"runs/lua": "run", "broker/lua": "transport", "models/pool/lua": "model pool"}
"""What the scripts of a folder are about."""
_CALLED = re.compile(r"call\(\s*['\"](\w+)['\"]", re.IGNORECASE)


@lru_cache(maxsize=1)
def script_sources() -> dict[str, tuple[str, str]]:
    """Name and source of every script that our processes use, by sha."""
    found = {script.sha: (f"pool {name}", script.source) for name, script in pool_scripts().items()}
    package = Path(rollout_tasks.__file__).parent
    for path in package.rglob("*.lua"):
        source = path.read_text(encoding="utf-8")
        found[_sha(source)] = (f"{_SCRIPTS[str(path.parent.relative_to(package))]} {path.stem}", source)
    holders = {"reconcile": reconcile, "celery": chords, "kombu": broker, "lock": Lock}
    for where, holder in holders.items():
        for name, value in vars(holder).items():
            if isinstance(value, str) and "redis.call" in value:
                short = name.strip("_").lower().removeprefix("lua_").removesuffix("_lua").removesuffix("_script")
                found[_sha(value)] = (f"{where} {short}", value)
    return found


def _sha(source: str) -> str:
    return hashlib.sha1(source.encode()).hexdigest()  # noqa: S324 (Redis names scripts so)


def name_of(commands: Sequence[Command]) -> str:
    """The name of what was sent in one go: a command, a transaction or a pipeline."""
    names: list[str] = []
    for command in commands:
        name = _name_of_one(command)
        if command.name not in {"MULTI", "EXEC"} and name not in names:
            names.append(name)
    joined = " + ".join(names[:4]) + (" + ..." if len(names) > 4 else "")
    if commands[0].name == "MULTI":
        return f"transaction {joined}"
    return joined if len(commands) == 1 or commands[0].name in HANDSHAKE else f"pipeline {joined}"


def _name_of_one(command: Command) -> str:
    if command.name in HANDSHAKE:
        return "connect"
    if command.name in {"EVALSHA", "EVAL", "SCRIPT"}:
        word = command.words[2] if command.name == "SCRIPT" and len(command.words) > 2 else command.words[1]
        sha = word.decode("latin-1") if command.name == "EVALSHA" else _sha(word.decode())
        return script_sources().get(sha, (f"script {sha[:8]}", ""))[0]
    if command.name == "BRPOP":
        return "BRPOP"  # the queues take turns in being named first
    if command.name == "PUBLISH" and b"celeryev" in command.words[1]:
        return "PUBLISH celeryev"
    if command.name in _WITHOUT_KEY or len(command.words) < 2:
        return command.name
    key = command.words[1].decode("latin-1").split("\x06")[0]
    for pattern, replacement in _IDS:
        key = pattern.sub(replacement, key)
    return f"{command.name} {key}"


def name_of_answer(commands: Sequence[Command], reply: bytes) -> str:
    """The name of a blocking request that was answered with something: of a pop from queues, with the queue."""
    name = name_of(commands)
    if name != "BRPOP":
        return f"{name} (something)"
    queue = reply.split(b"\r\n")[2].split(b"\x06")[0].decode("latin-1")
    return f"BRPOP ({queue})"


def commands_inside(commands: Sequence[Command]) -> set[str]:
    """Every Redis command that these may carry out, those inside scripts of ours included; small letters."""
    inside: set[str] = set()
    for command in commands:
        inside.add(command.name.lower())
        if command.name in {"EVALSHA", "EVAL"}:
            word = command.words[1].decode()
            sha = word if command.name == "EVALSHA" else _sha(word)
            _, source = script_sources().get(sha, ("", ""))
            inside |= {called.lower() for called in _CALLED.findall(source)}
    return inside
