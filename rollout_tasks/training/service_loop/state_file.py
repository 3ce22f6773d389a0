"""What the service loop is doing and what it waits for, in a file that is always whole."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from benchmark.whole_file import write_whole
from rollout_tasks.errors import UserError

STATE_NAME = "state.json"
_WRITE_SECONDS = 10.0
"""How old the file becomes at most while the loop runs."""

Doing = Literal["busy", "idle", "blocked", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the loop is doing."""

    doing: Doing
    """``busy``: rollouts are out. ``idle``: there is nothing to do. ``blocked``: something must happen first. ``draining``: it
    begins nothing more. ``stopped``: it does not run."""
    because: str
    """A clause that says what it waits for."""
    groups_under_way: int = 0
    rollouts_out: int = 0
    groups_ended: int = 0
    rollouts_counted: int = 0
    """Rollouts of these groups that have a reward."""
    weights: str = ""
    """How far the servers are with the newest checkpoint; empty without one."""

    def __str__(self) -> str:
        """Returns it as a line for people."""
        numbers = f"{self.groups_ended} groups ended, {self.groups_under_way} under way ({self.rollouts_out} rollouts)"
        return f"{self.doing}: {self.because}; {numbers}" + (f"; weights {self.weights}" if self.weights else "")


class StateFile:
    """Writes the state when it changes, and now and then, so that a reader sees that the loop lives."""

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet."""
        self._path = folder / STATE_NAME
        self._written: tuple[ServiceState, float] | None = None

    def show(self, state: ServiceState) -> bool:
        """Writes the state if it is time to; returns whether its kind or its reason is another than before.

        Raises:
            OSError: It cannot be written.
        """
        now = time.monotonic()
        before = self._written
        if before is not None and before[0] == state and now - before[1] < _WRITE_SECONDS:
            return False
        write_whole(self._path, json.dumps({**asdict(state), "at": time.time(), "process": os.getpid()}) + "\n")
        self._written = (state, now)
        return before is None or (before[0].doing, before[0].because) != (state.doing, state.because)


def read_state(folder: Path) -> tuple[Mapping[str, Any], ServiceState]:
    """Returns what the file has, and the state in it.

    Raises:
        UserError: There is none, or it cannot be read.
    """
    path = folder / STATE_NAME
    try:
        values = json.loads(path.read_bytes())
        return values, ServiceState(**{field.name: values[field.name] for field in fields(ServiceState)})
    except FileNotFoundError:
        raise UserError(f"{folder} is not the folder of a service loop: it has no {STATE_NAME}") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
