"""One session as the program that serves it holds it: calls of its client, and what its process has told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rollout_tasks.cells.channel import BadMessage, ChannelEnded, frame_of
from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import FailureClass
from rollout_tasks.service.command_sender import CommandSender
from rollout_tasks.service.known_acts import KnownActs
from rollout_tasks.service.session_order import SessionOrder, unpacked
from rollout_tasks.service.session_results import SessionEnd, SessionEnded, SessionRefused, Step
from rollout_tasks.service.session_spawner import SpawnedProcess
from vm_pool.states import Endpoint

logger = logging.getLogger(__name__)

_PROCESS_SECONDS = 300.0
"""How much later than the sum of its own limits a process may answer: for cleaning up, and for killing itself when it is stuck."""


class PlayedSession:
    """One session. Its methods may be called from any thread; all but `try_act` and `stop` wait for its process."""

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
        self.patience = order.config.vm.wait_seconds + 3 * limits.max_seconds + _PROCESS_SECONDS
        """The seconds within which its process answers anything; one that does not is killed."""
        self._process = process
        self._when_ended = when_ended
        self._stopped = ""
        self.stopped_at: float | None = None
        """When it was asked to end, on the monotonic clock; None if it was not."""
        self._changed = threading.Condition()
        self._acting = threading.Lock()
        """Taken by whoever begins an act or evaluates. An act's is released by the thread that takes its reply, or the end."""
        self._commands = CommandSender(process.channel)
        self._sent = 0
        self._awaited: tuple[int, str, Future[Step]] | None = None
        """The act that the process carries out: its number, its key, and where its step goes."""
        self._known_acts = KnownActs()
        self._commands.send(frame_of(order.as_dict()))
        threading.Thread(target=self._listen, name=f"session {self.id}", daemon=True).start()

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
        self._acting.acquire()
        done = self._act(name, arguments, key)
        try:
            return done.result(self.patience)
        except TimeoutError:
            self.kill_unresponsive()
            return done.result(_PROCESS_SECONDS)

    def try_act(self, name: str, arguments: Mapping[str, Any], key: str) -> Future[Step] | None:
        """Begins what `act` does, and does not wait; returns None if another call has to end first.

        The future's callbacks run in the thread that reads what the process tells, unless it is done already.
        """
        if not self._acting.acquire(blocking=False):
            return None
        return self._act(name, arguments, key)

    def _act(self, name: str, arguments: Mapping[str, Any], key: str) -> Future[Step]:
        """Begins a call whose turn it is: `_acting` is held until it is done."""
        done: Future[Step] = Future()
        done.set_running_or_notify_cancel()  # it cannot be cancelled
        try:
            step = self._begun(name, arguments, key, done)
        except BaseException as error:  # noqa: BLE001 (whoever asks for the result gets it)
            with self._changed:
                begun = done.done() or (self._awaited is not None and self._awaited[2] is done)
            if begun:  # it may be carried out: only the end of the process can tell
                self.kill()
                return done
            self._acting.release()
            done.set_exception(error)
            return done
        if step is not None:
            self._acting.release()
            done.set_result(step)
        return done

    def _begun(self, name: str, arguments: Mapping[str, Any], key: str, done: Future[Step]) -> Step | None:
        """Sends a call; or returns the step of the same one of before.

        Raises:
            SessionEnded, SessionRefused: As of `act`.
        """
        if (known := self._known_acts.step_of(key)) is not None:
            return known
        self.raise_if_ended()
        if not self.ready:
            raise SessionRefused("the item is not set up yet")
        if self.over is not None:
            raise SessionRefused(f"the episode is over ({self.over}): evaluate it")
        number = self._sent + 1
        try:
            frame = frame_of({"call": "act", "number": number, "name": name, "arguments": dict(arguments)})
        except ValueError as error:  # as of NaN
            raise SessionRefused(f"the arguments are not JSON: {error}") from error
        with self._changed:
            self.raise_if_ended()
            self._sent = number
            self._awaited = (number, key, done)
            self.calls += 1
        self._commands.send(frame)
        return None

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
                self._commands.send(frame_of({"call": "evaluate"}))
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
        self._commands.send(frame_of({"call": "stop", "why": why}))

    def wait_until_ended(self, seconds: float) -> bool:
        """Returns whether it has ended, after at most this long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.end is not None, seconds)

    def kill(self) -> None:
        """Ends its process at once."""
        self._process.kill()

    def kill_unresponsive(self) -> None:
        """Ends its process, which has not answered for `patience` seconds."""
        logger.error("session %s: its process did not answer for %g s; killing it", self.id, self.patience)
        self.kill()

    def _wait(self, there: Callable[[], bool]) -> None:
        """Waits, for a client, until something is there or the session has ended."""
        with self._changed:
            self.calls += 1
        try:
            self._wait_or_kill(there)
        finally:
            with self._changed:
                self.used = time.monotonic()
                self.calls -= 1

    def _wait_or_kill(self, there: Callable[[], bool]) -> None:
        """Waits until something is there or the session has ended; a process that answers nothing at all is killed."""
        with self._changed:
            if self._changed.wait_for(lambda: there() or self.end is not None, self.patience):
                return
        self.kill_unresponsive()
        self.wait_until_ended(_PROCESS_SECONDS)

    def raise_if_ended(self) -> None:
        """Raises if it is over, or is about to be.

        Raises:
            SessionEnded: It is.
        """
        if self.end is not None or self._stopped:
            raise self._error()

    def _error(self) -> SessionEnded:
        if self.end is None:
            return SessionEnded(FailureClass.CANCELLED, self._stopped)
        return SessionEnded(self.end.failure_class, self.end.error or "the session was evaluated and is over")

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
        except Exception:  # otherwise nobody would ever hear how it ended
            logger.exception("session %s: what its process told cannot be used", self.id)
        self.closed = True
        if end is None:
            self._process.kill()
            died = "the process that played the session ended by itself"
            end = SessionEnd(turns=self.turn, failure_class=FailureClass.WORKER_LOST, error=died, helped=self.helped)
        self._process.close(_PROCESS_SECONDS)
        try:
            self._when_ended(self, end)
        finally:
            self._end_as(end)

    def _take(self, message: dict[str, Any], content: bytes) -> SessionEnd | None:
        """Takes one message; returns how the session ended if it says so."""
        event = message.get("event")
        if event == "ended":
            return self._ended(message)
        shown = message.get("shown")
        observation = None if shown is None else unpacked(shown, content)
        if "reply" in message:
            self._take_reply(message, observation)
            return None
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
            self._changed.notify_all()
        return None

    def _take_reply(self, reply: Mapping[str, Any], observation: Observation | None) -> None:
        """Takes what became of the act that is awaited."""
        with self._changed:
            if self._awaited is None or self._awaited[0] != reply["reply"]:
                return
            _, key, done = self._awaited
            step = None
            if "refused" not in reply:
                seconds = float(reply["seconds"])
                step = Step(reply["status"], reply["response"], observation, reply["turn"], reply["over"], seconds)
                self.turn, self.over = step.turn, step.over
                self.observation = observation or self.observation
                self._known_acts.add(key, step)
            self._no_longer_await()
        self._acting.release()
        if step is None:
            done.set_exception(SessionRefused(reply["refused"]))
        else:
            done.set_result(step)

    def _no_longer_await(self) -> None:
        """Notes that no act is awaited any more. Under the lock."""
        self._awaited = None
        self.used = time.monotonic()  # before the call is over: see `session_ends.stop_silent`
        self.calls -= 1

    def _end_as(self, end: SessionEnd) -> None:
        """Notes how it ended, for all who wait."""
        with self._changed:
            self.end = end
            awaited = self._awaited
            if awaited is not None:
                self._no_longer_await()
            self._changed.notify_all()
        if awaited is not None:
            self._acting.release()
            awaited[2].set_exception(self._error())

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
