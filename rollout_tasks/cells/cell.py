"""The worker's side of a cell: opens it, calls its methods, answers its requests, and ends it.

Nothing from a cell is trusted: callers check its answers, and handlers check its requests.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from rollout_tasks.cells.channel import BadMessage, ChannelEnded, ChannelSilent, MessageChannel
from rollout_tasks.cells.filesystem import CellsUnavailable
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.resource_watch import ResourceWatch
from rollout_tasks.cells.template import INTERRUPT, INTERRUPTED, NOT_MADE, NUMBER
from rollout_tasks.cells.template_process import TemplateProcess
from vm_pool.gate import Dial, Gate, Gates

logger = logging.getLogger(__name__)

OPEN_SECONDS = 30.0
"""Limit for making a cell; others may be made at the same time."""
END_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
"""After this time, a call that still runs is interrupted again."""
_CREDENTIALS = struct.Struct("3i")
_INTERRUPTED = NUMBER.pack(INTERRUPTED)
_MOST_LISTENERS = 32

Content = Iterable[bytes]
Handled = tuple[Any, Content | None]
"""A JSON value, and bytes that go with it."""


class CellEnded(RuntimeError):
    """The cell is gone, or sent invalid messages; the message says how it ended."""


class CallFailed(Exception):
    """The called method raised an error.

    Args:
        kind: The error's class, as reported by the cell.
        message: The error's message.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a worker does for a cell during a call."""

    request_handlers: Mapping[str, Callable[..., Handled]]
    """Handler by request name; called with untrusted JSON values by name. Any error it raises is the answer."""
    told: Mapping[str, Callable[[bytes], object]]
    """Handler by message name; called with each piece of the content."""


class Cell:
    """One cell, from its opening to `close`."""

    def __init__(
        self,
        template: TemplateProcess,
        *,
        ports: Mapping[str, int],
        dial: Dial,
        hosts: Iterable[str] = (),
        limits: CellLimits | None = None,
    ) -> None:
        """Opens the cell.

        Args:
            template: The template that makes the cell.
            ports: What its programs may reach: loopback port by name.
            dial: Connects to one of these names, or to port 443 of one of the hosts.
            hosts: Names of hosts that its programs may reach by name, at port 443.
            limits: What the cell may use.

        Raises:
            CellEnded: The cell does not open.
        """
        self._numbers = itertools.count(1)
        self._broken_off: int | None = None
        self._gates = Gates()
        self._gate: Gate | None = None
        self._listeners: list[socket.socket] = []
        self._ended = ""
        self._said_last = _INTERRUPTED
        """What the template answered last: that, or how the cell ended."""
        self._over = ""
        limits = limits or CellLimits()
        addresses = {host: f"127.0.1.{number}" for number, host in enumerate(hosts, 1)}
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # before anything is sent
        self._channel = MessageChannel(mine)
        try:
            with theirs:
                self._template = template.connect(OPEN_SECONDS)
                request = {"ports": dict(ports), "hosts": addresses, "limits": asdict(limits)}
                socket.send_fds(self._template, [json.dumps(request).encode()], [theirs.fileno()])
            self._welcome(mine, dial, limits)
        except (OSError, CellsUnavailable) as error:
            self.close()
            raise CellEnded(f"a cell cannot be made: {error}") from error
        except BaseException:
            self.close()
            raise

    def _welcome(self, mine: socket.socket, dial: Dial, limits: CellLimits) -> None:
        """Receives the process id and listening sockets that the cell sends before it runs untrusted code."""
        mine.settimeout(OPEN_SECONDS)
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(NUMBER.size * _MOST_LISTENERS)
        said, ancillary, _, _ = mine.recvmsg(1 << 16, room)
        pid = 0
        for _, kind, content in ancillary:
            if kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack(content)[0]
            elif kind == socket.SCM_RIGHTS:
                self._listeners = [socket.socket(fileno=number) for (number,) in NUMBER.iter_unpack(content)]
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        if not said or not pid:
            raise CellEnded(f"a cell cannot be made: {self._how_it_ended()}")
        self._watch = ResourceWatch(pid, limits, self.abort)
        self._gate = self._gates.open_on(dict(zip(json.loads(said), self._listeners, strict=True)), dial)
        mine.settimeout(None)

    def call(
        self, method: str, handlers: Handlers, content_to: Callable[[bytes], object] | None = None, **arguments: Any
    ) -> Any:
        """Calls a method inside the cell, without a time limit; an alarm may interrupt it.

        Args:
            method: The method's name.
            handlers: For the cell's requests during the call.
            content_to: Called with each piece of the bytes that come with the answer; must limit them.
            arguments: JSON values.

        Returns:
            The answer, an untrusted JSON value.

        Raises:
            CallFailed: The method raised an error.
            CellEnded: The cell has ended.
        """
        if self._over:
            raise CellEnded(self._over)
        try:
            if not self._channel.usable:
                raise BadMessage("it was interrupted in the middle of a message")
            self._settle()
            number = next(self._numbers)
            self._broken_off = number
            self._channel.send({"call": method, "arguments": arguments, "number": number})
            answer = self._answer(number, handlers, content_to)
        except (ChannelEnded, BadMessage) as error:
            how = str(error) if isinstance(error, BadMessage) else self._how_it_ended()
            self._over = f"the cell ended: {how}"
            self._end()
            raise CellEnded(self._over) from error
        if "error" in answer:
            raise CallFailed(str(answer.get("kind"))[:100], str(answer["error"])[:10_000])
        return answer.get("value")

    def close(self) -> None:
        """Ends the cell with all its processes. Harmless when repeated."""
        self._over = self._over or "the cell is closed"
        self._end()

    def _settle(self) -> None:
        """After an interrupted call: interrupts it in the cell too, and skips what the cell still sends."""
        if self._broken_off is None:
            return
        until = time.monotonic() + END_SECONDS
        self._channel.socket.settimeout(_AGAIN_SECONDS)
        try:
            while True:
                self._interrupt()
                try:
                    self._answer(self._broken_off, None, None, until)
                    break
                except ChannelSilent as error:  # some libraries swallow interruptions
                    if time.monotonic() > until:
                        raise BadMessage("it goes on though it was interrupted") from error
        finally:
            self._channel.socket.settimeout(None)

    def _interrupt(self) -> None:
        """Has the cell interrupted, and waits until it was: an interruption that comes late would hit the next call."""
        with suppress(OSError):
            self._template.settimeout(END_SECONDS)
            self._template.send(INTERRUPT)
            self._said_last = self._template.recv(NUMBER.size)

    def _answer(
        self,
        number: int,
        handlers: Handlers | None,
        content_to: Callable[[bytes], object] | None,
        until: float = math.inf,
    ) -> dict[str, Any]:
        """Returns the answer to a call; without handlers, the cell's requests are ignored."""
        while time.monotonic() < until:
            message, has_bytes = self._channel.receive_header()
            if message.get("answer") == number:
                self._broken_off = None  # even if reading its bytes fails
                self._pass_on(has_bytes, content_to)
                return message
            if "tell" in message:
                self._pass_on(has_bytes, handlers.told.get(str(message["tell"])) if handlers else None)
            elif "ask" in message:
                self._pass_on(has_bytes, None)
                if handlers is not None:
                    self._handle(message, handlers)
            else:
                raise BadMessage("it sent what is neither a question nor the answer")
        raise BadMessage("it goes on though it was interrupted")

    def _pass_on(self, has_bytes: bool, take: Callable[[bytes], object] | None) -> None:
        if has_bytes:
            for piece in self._channel.pieces():
                if take is not None:
                    take(piece)

    def _handle(self, message: Mapping[str, Any], handlers: Handlers) -> None:
        handler = handlers.request_handlers.get(str(message["ask"]))
        arguments = message.get("arguments")
        content: Content | None = None
        try:
            if handler is None or not isinstance(arguments, dict):
                raise ValueError("unknown request")
            value, content = handler(**arguments)
            answer = {"value": value}
        except Exception as error:  # noqa: BLE001 (the border to code that is not ours: it hears why, whatever it was)
            answer, content = {"error": f"{type(error).__name__}: {error}"}, None
        self._channel.send(answer, content)

    def abort(self, why: str) -> None:
        """Ends the cell from another thread; the waiting call reports why."""
        self._ended = self._ended or why
        with suppress(OSError):
            self._template.shutdown(socket.SHUT_RDWR)

    def _how_it_ended(self) -> str:
        """Returns how the cell ended, in words; waits until the template has noticed."""
        if self._ended:
            return self._ended
        said = self._said_last
        try:
            self._template.settimeout(END_SECONDS)
            while said == _INTERRUPTED:
                said = self._template.recv(NUMBER.size)
        except TimeoutError:
            return f"the template of cells does not say how within {END_SECONDS:g} s"
        except OSError:
            said = b""
        if len(said) != NUMBER.size:
            return "the template of cells ended"
        (code,) = NUMBER.unpack(said)
        if code >= NOT_MADE:
            return f"no process for it: {os.strerror(code - NOT_MADE)}"
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def _end(self) -> None:
        """Ends and closes everything; if one step fails or is interrupted, the others are still taken."""
        gate, self._gate = self._gate, None
        with ExitStack() as steps:  # which are taken from the last to the first
            steps.callback(self._gates.close)
            for listener in self._listeners:  # open where the gate never was
                steps.callback(listener.close)
            if gate is not None:
                steps.callback(gate.close)
            steps.callback(self._channel.close)
            if (template := getattr(self, "_template", None)) is not None:
                steps.callback(template.close)
                steps.callback(_await_end, template)
            if (watch := getattr(self, "_watch", None)) is not None:
                steps.callback(watch.stop)


def _await_end(template: socket.socket) -> None:
    """Has the template end the cell, and waits until it has."""
    with suppress(OSError):
        template.shutdown(socket.SHUT_WR)
        template.settimeout(END_SECONDS)
        while template.recv(64):
            pass
