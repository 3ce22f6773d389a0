"""The code in a cell: one of OSWorld's own agents for one episode, called by `agent.py`. Importing this imports no agent.

The template of these cells imports it once, with the packages that the agents' modules import, and each cell runs `serve`.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollout_tasks.agents.osworld.model_front import ModelFront, environment_of_agents
from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.isolation import FOLDER
from rollout_tasks.cells.service import Answer, CallInterrupted, CellService

LONGEST_TEXT = 20_000
"""Characters of what a turn says."""
_PIECE = 1 << 16

for _package in ("backoff", "openai", "requests", "numpy", "PIL.Image", "httpx", "lxml.etree", "tiktoken", "anthropic"):
    with suppress(ImportError):
        importlib.import_module(_package)


class _Desktop:
    """What agents take for their `DesktopEnv`: the worker does what they ask for."""

    def __init__(self, service: CellService) -> None:
        self._service = service
        self.ended = False

    def step(self, action: Any, pause: float | None = None) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        """Carries out an action, as `DesktopEnv.step` does."""
        del pause  # the run's option decides
        if isinstance(action, Mapping):
            action = action.get("command") or action.get("action")
        outcome, picture = self._service.ask_for_bytes("execute", {"action": str(action)})
        self.ended = bool(outcome["ended"])
        return {"screenshot": picture, "accessibility_tree": ""}, 0.0, self.ended, {}

    def _get_obs(self) -> dict[str, Any]:
        _, picture = self._service.ask_for_bytes("look", {})
        return {"screenshot": picture, "accessibility_tree": ""}


class _AgentService:
    """The methods that a worker may call."""

    def __init__(self, channel: MessageChannel) -> None:
        self.service = CellService(channel, {"begin": self.begin, "turn": self.turn})
        self._desktop = _Desktop(self.service)
        self._agent: Any = None

    def begin(
        self, module: str, class_name: str, arguments: Mapping[str, Any], session_path: str, token: str
    ) -> Answer:
        """Makes the agent.

        Args:
            module: Where its class is.
            class_name: The class.
            arguments: Its constructor's, by name.
            session_path: The session's address at the gateway.
            token: The session's key.
        """
        os.environ.update(environment_of_agents())
        ModelFront(session_path, token, Path(FOLDER)).start()
        self._log_output()
        found = importlib.import_module(module)
        made = getattr(found, class_name)
        given = dict(arguments)
        parameters = inspect.signature(made).parameters
        if "env" in parameters:
            given["env"] = self._desktop
        if "provider" in parameters and hasattr(found, "APIProvider"):
            given["provider"] = found.APIProvider.ANTHROPIC
        self._agent = made(**given)
        self._agent.reset(logging.getLogger("desktopenv.agent"))
        return None, None

    def turn(self, instruction: str) -> Answer:
        """Asks the agent for its next actions and has them carried out; returns what it says."""
        observation = {**self._desktop._get_obs(), "instruction": instruction}
        said, actions, *_ = self._agent.predict(instruction, observation)
        for action in actions or ():
            if action is None:  # a reply that the class could not read
                continue
            if hasattr(self._agent, "step"):
                self._agent.step(action)
            else:
                self._desktop.step(action)
            if self._desktop.ended:
                break
        finished = isinstance(said, Mapping) and said.get("state_correct") is False
        if finished and not self._desktop.ended:
            self._desktop.step("DONE")
        return _text(said), None

    def _log_output(self) -> None:
        """Sends what is printed and logged to the worker, for the attempt's folder."""
        read, write = os.pipe()
        for stream in (1, 2):
            os.dup2(write, stream)
        os.close(write)
        for output in (sys.stdout, sys.stderr):
            output.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        threading.Thread(target=self._pass_on, args=(read,), name="log", daemon=True).start()

    def _pass_on(self, read: int) -> None:
        while piece := os.read(read, _PIECE):
            with suppress(CallInterrupted):  # it is the main thread's
                self.service.tell("log", piece)


def _text(said: Any) -> str:
    """Returns what a turn says, from whatever a class calls its response."""
    if isinstance(said, Mapping):
        said = said.get("response") or ""
    if isinstance(said, Sequence) and not isinstance(said, str):
        said = "\n".join(map(str, said))
    return str(said or "")[:LONGEST_TEXT]


def serve(connection: socket.socket) -> None:
    """Serves a worker until it disconnects."""
    logging.getLogger().handlers.clear()
    os.environ.pop("PYTHONPATH", None)
    _AgentService(MessageChannel(connection)).service.run()
