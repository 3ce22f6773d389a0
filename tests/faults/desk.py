"""What the playground's rollouts are made of: a provider of desktops that machines.py serves, and an environment that acts in them.

Both are found as an extension's are, through entry points that `write_entry_points` puts into a folder on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmark.items import Item
from rollout_tasks.environments.base import (
    Environment,
    EnvironmentContext,
    Observation,
    Tool,
    ToolCall,
    ToolResult,
    VMLost,
)
from vm_pool.gate_client import connect
from vm_pool.states import Endpoint

QUEUE = "rollout.desk"
_PURPOSE = "control"
_SECONDS = 5.0
_WORK = Tool("work", "Does one step.", {"type": "object", "properties": {}, "additionalProperties": False})


def write_entry_points(folder: Path) -> None:
    """Makes a folder that, on PYTHONPATH, adds the environment ``desk`` and the provider ``desks``."""
    described = folder / "faults_desk-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: faults-desk\nVersion: 1\n")
    (described / "entry_points.txt").write_text(
        f"[rollout_tasks.environments]\ndesk = {__name__}:DeskEnvironment\n[vm_pool.providers]\ndesks = {__name__}:DeskProvider\n"
    )


def _say(connection: socket.socket, what: str, who: str = "") -> list[str]:
    """Says one thing to a desktop; returns whose acts it remembers."""
    connection.sendall(json.dumps({"do": what, "who": who}).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError("the desktop hung up")
        answer += data
    acts: list[str] = json.loads(answer)["acts"]
    return acts


class DeskProvider:
    """The provider ``desks``: option ``ports`` lists the desktops' ports."""

    needs_reset = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._ports: list[int] = list(options["ports"])

    def boot(self, vm_id: str) -> Endpoint:
        """A desktop is always there; booting makes it clean."""
        return self.reset(vm_id)

    def reset(self, vm_id: str) -> Endpoint:
        """Makes it clean."""
        self._tell(vm_id, "reset")
        return Endpoint("127.0.0.1", {_PURPOSE: self._port(vm_id)})

    def check(self, vm_id: str) -> None:
        """Asks it."""
        self._tell(vm_id, "check")

    def stop(self, vm_id: str) -> None:
        """It stays."""

    def reap_leftovers(self, host_id: str) -> Sequence[str]:  # noqa: ARG002 (part of the contract)
        """There are none that matter: a boot makes them clean."""
        return ()

    def _port(self, vm_id: str) -> int:
        return self._ports[int(vm_id.rpartition("-")[2])]

    def _tell(self, vm_id: str, what: str) -> None:
        with socket.create_connection(("127.0.0.1", self._port(vm_id)), timeout=_SECONDS) as connection:
            _say(connection, what)


class DeskEnvironment(Environment):
    """Acts in a desktop through the lent address: an item's ``steps``, ``seconds`` apart.

    Scores 1 when the desktop has its own acts and no others.
    """

    needs_vm: ClassVar[bool] = True
    queue: ClassVar[str] = QUEUE
    default_agent: ClassVar[str] = "simulated"

    def __init__(self, context: EnvironmentContext) -> None:
        self._context = context
        self._connection: socket.socket | None = None
        self._steps = 0
        self._seconds = 0.0
        self._done = 0
        self._who = ""

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        return "Call work until the episode ends."

    def tools(self) -> list[Tool]:
        return [_WORK]

    def reset(self, item: Item) -> Observation:
        """Connects to the desktop, which must be clean."""
        vm = self._context.vm
        assert vm is not None
        self._steps, self._seconds = item.env_config["steps"], item.env_config["seconds"]
        run = self._context.directory.parents[2].name
        self._who = f"{run} {item.id} {self._context.attempt} {os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            self._connection = connect(vm.endpoint, _PURPOSE)
            self._connection.settimeout(_SECONDS)
        except OSError as error:
            raise VMLost(f"{vm.vm_id} does not answer: {error}") from error
        acts = self._ask("look")
        return Observation(f"{len(acts)} acts")

    def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
        """One act."""
        time.sleep(self._seconds)
        self._ask("act")
        self._done += 1
        return ToolResult("success", "done", ends_episode="done" if self._done >= self._steps else None)

    def evaluate(self) -> float | None:
        """Whether the desktop saw this execution's acts, all of them, and nobody else's."""
        return 1.0 if self._ask("look") == [self._who] * self._steps else 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _ask(self, what: str) -> list[str]:
        assert self._connection is not None
        try:
            return _say(self._connection, what, self._who)
        except (OSError, ValueError) as error:
            raise VMLost(f"the desktop does not answer: {error}") from error
