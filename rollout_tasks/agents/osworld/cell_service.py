"""The code in a cell: one of OSWorld's own agents for one episode, called by `agent.py`. Importing this imports no agent.

The template of these cells imports it once, with the packages that the agents' modules import, and each cell runs `serve`.
"""

from __future__ import annotations

import fcntl
import importlib
import inspect
import logging
import os
import select
import socket
import struct
import sys
import termios
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rollout_tasks.agents.osworld.model_proxy import ModelProxy, environment_of_agents
from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.isolation import FOLDER
from rollout_tasks.cells.service import Answer, CallInterrupted, CellService

LONGEST_TEXT = 20_000
"""Characters of what a turn says."""
_PIECE = 1 << 16
_LAST_WORDS_SECONDS = 1.0
"""How long an answer waits for what was printed before it."""

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
        outcome, picture = self._service.ask_for_bytes("execute", {"action": _script(action)})
        self.ended = bool(outcome["ended"])
        return _observation(picture), 0.0, self.ended, {}

    def _get_obs(self) -> dict[str, Any]:
        return _observation(self._service.ask_for_bytes("look", {})[1])


def _observation(picture: bytes) -> dict[str, Any]:
    return {"screenshot": picture, "accessibility_tree": None, "terminal": None}


def _script(action: Any) -> str:
    """Returns an action as a script, or as OSWorld's word for it."""
    if isinstance(action, Mapping):
        action = next((action[name] for name in ("command", "action", "action_type") if action.get(name)), action)
    if not isinstance(action, str):
        raise ValueError(f"the agent's action is not a script: {str(action)[:200]}")
    return action


class _Output:
    """What the process prints and logs, sent to the worker for the attempt's folder."""

    def __init__(self, service: CellService) -> None:
        self._service = service
        self._read, write = os.pipe()
        for stream in (1, 2):
            os.dup2(write, stream)
        os.close(write)
        for output in (sys.stdout, sys.stderr):
            output.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        self._idle = threading.Event()
        threading.Thread(target=self._pass_on, name="output", daemon=True).start()

    def flush(self) -> None:
        """Waits until what was printed so far is sent."""
        sys.stdout.flush()
        sys.stderr.flush()
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < deadline and not (self._left() == 0 and self._idle.is_set()):
            time.sleep(0.005)

    def _left(self) -> int:
        (left,) = struct.unpack("i", fcntl.ioctl(self._read, termios.FIONREAD, bytes(4)))
        return int(left)

    def _pass_on(self) -> None:
        while True:
            self._idle.set()
            select.select([self._read], [], [])
            self._idle.clear()  # before it is read, so that `flush` sees one or the other
            piece = os.read(self._read, _PIECE)
            with suppress(CallInterrupted):  # it is the main thread's
                self._service.tell("log", piece)


class _AgentService:
    """The methods that a worker may call."""

    def __init__(self, channel: MessageChannel) -> None:
        self.service = CellService(channel, {"begin": self.begin, "turn": self.turn})
        self._desktop = _Desktop(self.service)
        self._proxy: ModelProxy | None = None
        self._output: _Output | None = None
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
        self._proxy = ModelProxy(session_path, token, Path(FOLDER))
        self._proxy.start()
        self._output = _Output(self.service)
        with self._flushed():
            found = importlib.import_module(module)
            made = getattr(found, class_name)
            self._agent = made(**self._arguments(found, made, arguments))
            self._agent.reset(logging.getLogger("desktopenv.agent"))
        return None, None

    def turn(self, instruction: str) -> Answer:
        """Asks the agent for its next actions and has them carried out.

        Returns:
            What it says; whether its model's reply had no action, which ends the episode; and the last address that it asked for
            and that is not a model's.
        """
        with self._flushed():
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
        elsewhere = self._proxy.elsewhere if self._proxy is not None else ""
        return {"said": _text(said), "finished": finished, "elsewhere": elsewhere}, None

    def _arguments(self, module: Any, made: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the constructor's arguments, with those that cannot be sent; a table is filled up from its default."""
        arguments = dict(given)
        parameters = inspect.signature(made).parameters
        for name, value in given.items():
            default = parameters[name].default
            if isinstance(value, Mapping) and isinstance(default, Mapping):
                if unknown := sorted(value.keys() - default.keys()):
                    raise ValueError(f"{name} has no {unknown[0]!r}; known: {', '.join(sorted(default))}")
                arguments[name] = {**default, **value}
        if "env" in parameters:
            arguments["env"] = self._desktop
        if "provider" in parameters and hasattr(module, "APIProvider"):
            arguments["provider"] = module.APIProvider.ANTHROPIC
        return arguments

    @contextmanager
    def _flushed(self) -> Iterator[None]:
        """Sends what is printed meanwhile before the answer, and where an error came from."""
        try:
            yield
        except Exception:
            traceback.print_exc()
            raise
        finally:
            if self._output is not None:
                self._output.flush()


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
