"""One session as the program that serves it holds it: what its process has told, and calls that wait for its replies."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from rollout_tasks.cells.channel import BadMessage, ChannelEnded
from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import FailureClass
from rollout_tasks.service.session_order import SessionOrder, unpacked
from rollout_tasks.service.session_results import SessionEnd, SessionEnded, SessionRefused, Step
from rollout_tasks.service.session_spawner import SpawnedProcess
from vm_pool.states import Endpoint

logger = logging.getLogger(__name__)

_PROCESS_SECONDS = 300.0
"""How much later than the sum of its own limits a process may answer: for cleaning up, and for killing itself when it is stuck."""


class PlayedSession:
    """One session. Its methods may be called from any thread, and wait for its process."""

    def __init__(
        self,
        order: SessionOrder,
        process: SpawnedProcess,
        when_ended: Callable[[PlayedSession, SessionEnd], None],
        silent_seconds: float,
    ) -> None:
        """Sends the order.

        Args:
            order: What is played.
            process: Its process, which has no order yet.
            when_ended: Called once, in a thread, when the process is gone and before `end` is known to others.
            silent_seconds: How long its client may be silent.
        """
        self.order = order
        self.silent_seconds = silent_seconds
        self.began = time.time()
        self.used = time.monotonic()
        """When a call was last made or answered."""
        self.vm_id: str | None = None
        self.fence: int | None = None
        """The lease's number; None while the session waits for a VM."""
        self.ports: Mapping[str, int] = {}
        """Ports of this machine that lead to the VM, by purpose, if the order lends them."""
        self.endpoint: Endpoint | None = None
        """Where the VM itself answers: for connections through the service."""
        self.pooled = False
        """Whether the VM is a pool's, to which it has to be given back."""
        self.tools: Sequence[Mapping[str, Any]] = ()
        """The environment's tools in the Chat Completions format."""
        self.instructions = ""
        """What a system prompt says about the environment."""
        self.observation: Observation | None = None
        """The latest; None before the item is set up."""
        self.turn = 0
        self.over: str | None = None
        self.helped = False
        """Whether a person used the VM, too, so that what happens there is not the agent's alone."""
        self.end: SessionEnd | None = None
        """None while it goes on."""
        self.closed = False
        """Whether its client may no longer reach the VM: it is evaluated, ends, or was asked to. Known before others get the VM."""
        self.calls = 0
        """Calls that wait for the process."""
        limits = order.config.limits
        self._patience = order.config.vm.wait_seconds + 3 * limits.max_seconds + _PROCESS_SECONDS
        self._process = process
        self._when_ended = when_ended
        self._stopped = ""
        self.stopped_at: float | None = None
        """When it was asked to end, on the monotonic clock; None if it was not."""
        self._changed = threading.Condition()
        self._acting = threading.Lock()
        self._outbox: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._sent = 0
        self._replies: dict[int, tuple[dict[str, Any], Observation | None]] = {}
        self._keys: set[str] = set()
        self._latest: tuple[str, Step] | None = None
        """The last act that had a key. A client repeats a call whose reply was lost before it makes another one."""
        self._send(order.as_dict())
        for work in (self._listen, self._write):
            threading.Thread(target=work, name=f"session {order.session_id}", daemon=True).start()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.order.session_id

    @property
    def ready(self) -> bool:
        """Whether the item is set up."""
        return self.observation is not None

    def wait_until_ready(self) -> None:
        """Waits for the VM, and until the item is set up on it.

        Raises:
            SessionEnded: There was no VM in time, or it cannot be set up.
        """
        self._wait(lambda: self.ready)
        self.raise_if_ended()

    def settle(self) -> None:
        """Waits as `wait_until_ready` does, but neither raises nor counts as a call: the client may have gone."""
        self._wait_or_kill(lambda: self.ready)

    def act(self, name: str, arguments: Mapping[str, Any], key: str) -> Step:
        """Carries out one call of a tool.

        Args:
            name: The tool.
            arguments: Its arguments; wrong ones are a failed step.
            key: Names the call: repeated with the same key, it is not carried out again. Empty for none.

        Raises:
            SessionEnded: It is over.
            SessionRefused: The episode is over, or the key is that of an earlier call whose step is no longer kept.
        """
        with self._acting:
            if key and key in self._keys:
                if self._latest is not None and self._latest[0] == key:
                    return self._latest[1]
                raise SessionRefused(
                    f"the call {key!r} was carried out before the last one; what it returned is not kept"
                )
            self.raise_if_ended()
            if not self.ready:
                raise SessionRefused("the item is not set up yet")
            if self.over is not None:
                raise SessionRefused(f"the episode is over ({self.over}): evaluate it")
            step = self._carried_out(name, arguments)
            if key:
                self._keys.add(key)
                self._latest = (key, step)
            return step

    def evaluate(self) -> SessionEnd:
        """Ends the episode, scores it and gives the VM back; repeated, it returns the same.

        Raises:
            SessionRefused: The item is not set up yet.
        """
        with self._acting:
            if self.end is None:
                if not self.ready:
                    raise SessionRefused("the item is not set up yet")
                self.closed = True
                self._send({"call": "evaluate"})
            self._wait(lambda: False)
        assert self.end is not None  # noqa: S101 - it has been waited for
        return self.end

    def stop(self, why: str) -> None:
        """Ends it, whatever it does, without waiting for that. Its VM goes back to the pool."""
        with self._changed:
            if self.end is not None or self._stopped:
                return
            self.closed = True
            self._stopped, self.stopped_at = why, time.monotonic()
        self._send({"call": "stop", "why": why})

    def wait_until_ended(self, seconds: float) -> bool:
        """Returns whether it has ended, after at most this long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.end is not None, seconds)

    def kill(self) -> None:
        """Ends its process at once."""
        self._process.kill()

    def _carried_out(self, name: str, arguments: Mapping[str, Any]) -> Step:
        try:
            json.dumps(dict(arguments), allow_nan=False)
        except ValueError as error:  # as of NaN
            raise SessionRefused(f"the arguments are not JSON: {error}") from error
        self._sent += 1
        number = self._sent
        self._send({"call": "act", "number": number, "name": name, "arguments": dict(arguments)})
        self._wait(lambda: number in self._replies)
        if number not in self._replies:
            self.raise_if_ended()
        reply, observation = self._replies.pop(number)
        if "refused" in reply:
            raise SessionRefused(reply["refused"])
        self.turn, self.over = reply["turn"], reply["over"]
        self.observation = observation or self.observation
        return Step(
            reply["status"], reply["response"], observation, reply["turn"], reply["over"], float(reply["seconds"])
        )

    def _wait(self, there: Callable[[], bool]) -> None:
        """Waits, for a client, until something is there or the session has ended."""
        with self._changed:
            self.calls += 1
        try:
            self._wait_or_kill(there)
        finally:
            with self._changed:
                self.calls -= 1
                self.used = time.monotonic()

    def _wait_or_kill(self, there: Callable[[], bool]) -> None:
        """Waits until something is there or the session has ended; a process that answers nothing at all is killed."""
        with self._changed:
            if self._changed.wait_for(lambda: there() or self.end is not None, self._patience):
                return
        logger.error("session %s: its process did not answer for %g s; killing it", self.id, self._patience)
        self.kill()
        self.wait_until_ended(_PROCESS_SECONDS)

    def raise_if_ended(self) -> None:
        """Raises if it is over, or is about to be.

        Raises:
            SessionEnded: It is.
        """
        if self.end is not None:
            sentence = self.end.error or "the session was evaluated and is over"
            raise SessionEnded(self.end.failure_class, sentence)
        if self._stopped:
            raise SessionEnded(FailureClass.CANCELLED, self._stopped)

    def _send(self, message: dict[str, Any]) -> None:
        """Has a command sent, and does not wait for that: a process that is stopped reads nothing."""
        self._outbox.put(message)

    def _write(self) -> None:
        """Sends commands until the process is gone, which `_listen` notices."""
        with suppress(ChannelEnded):
            while (message := self._outbox.get()) is not None:
                self._process.channel.send(message)

    # What the process tells

    def _listen(self) -> None:
        """Takes what the process tells until it has ended."""
        end = None
        try:
            while end is None:
                content = bytearray()
                message = self._process.channel.receive(content.extend)
                end = self._take(message, bytes(content))
        except ChannelEnded:
            pass
        except BadMessage as error:
            logger.error("session %s: its process broke off: %s", self.id, error)
        self.closed = True
        self._outbox.put(None)
        if end is None:
            self._process.kill()
            died = "the process that played the session ended by itself"
            end = SessionEnd(turns=self.turn, failure_class=FailureClass.WORKER_LOST, error=died, helped=self.helped)
        self._process.close(_PROCESS_SECONDS)
        try:
            self._when_ended(self, end)
        finally:
            with self._changed:
                self.end = end
                self._changed.notify_all()

    def _take(self, message: dict[str, Any], content: bytes) -> SessionEnd | None:
        """Takes one message; returns how the session ended if it says so."""
        event = message.get("event")
        if event == "ended":
            return self._ended(message)
        shown = message.get("shown")
        observation = None if shown is None else unpacked(shown, content)
        with self._changed:
            if event == "granted":
                self.vm_id, self.fence, self.pooled = message["vm_id"], message["fence"], message["pooled"]
                self.ports = message["ports"]
                given = message.get("endpoint")
                self.endpoint = None if given is None else Endpoint(**given)
            elif event == "closing":
                self.closed = True
            elif event == "ready":
                self.tools, self.instructions, self.observation = message["tools"], message["instructions"], observation
            else:
                self._replies[message["reply"]] = (message, observation)
            self._changed.notify_all()
        return None

    def _ended(self, message: Mapping[str, Any]) -> SessionEnd:
        failure = message["failure_class"]
        return SessionEnd(
            score=message["score"],
            ending=message["ending"],
            turns=message["turns"],
            failure_class=None if failure is None else FailureClass(failure),
            error=message["error"],
            stages=message["stages"],
            helped=self.helped,
        )
