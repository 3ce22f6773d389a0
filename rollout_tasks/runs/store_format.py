"""How runs are stored in Redis: the names of their keys, verdicts as text, versions, and the scripts that change them.

Keys of one run, all under the tag ``{run:ID}``: the hash itself (state, configuration, total), ``:items``, ``:pending``
(rollouts without a verdict), ``:attempts``, ``:holders`` and ``:alive`` (who runs what, and the last heartbeat),
``:results``, ``:counts``, ``:spent`` (what rollouts cost before a resume). A change of more than one of them is one script in
lua/. All times in them are the server's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import LuaScripts
from rollout_tasks.runs.verdict import Verdict

ACTIVE_RUNS = "runs:active"
SCRIPTS = LuaScripts(Path(__file__).with_name("lua"))
VERSION = 1
"""Version of stored runs and messages that this code writes, and the latest that it understands."""
MIN_VERSION = 1
"""The oldest version that can work on what this code writes: workers of two versions may share a broker."""
CHUNK = 1_000
"""Entries stored or read at a time."""


class UnreadableRun(UserError):
    """A stored run that this version cannot work on; the message says which and why."""


def too_new(run_id: str) -> str:
    """Returns the sentence about a run that this code is too old for."""
    return (
        f"run {run_id} was stored by a newer version of this software, whose runs this one (version {VERSION} of stored runs)"
        " cannot work on: update the software on this machine"
    )


def run_key(run_id: str) -> str:
    """Returns the key of a run's hash; the names of its other keys begin with it."""
    return f"{{run:{run_id}}}"


def stored_cost(cost: float | None) -> str:
    """Returns dollars as the scripts take them; empty if they are unknown."""
    return "" if cost is None else repr(cost)


def stored_verdict(verdict: Verdict, *, token: str = "") -> str:
    """Returns the verdict as Redis stores it, without the rollout's id, which names the hash field."""
    values = verdict.as_dict()
    values.pop("rollout_id", None)
    values["token"] = token
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def chunks(entries: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields the entries in lists of at most `CHUNK`."""
    chunk: list[Any] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
