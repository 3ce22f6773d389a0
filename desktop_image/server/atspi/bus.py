"""A D-Bus connection that sends many calls at once and does not wait for programs that never answer."""

from __future__ import annotations

import select
import socket
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

from .. import user
from . import dbus_format
from .dbus_format import Call, MethodReply

SILENCE_SECONDS, SILENT_BEFORE_SECONDS = 5.0, 1.0
"""A program that answers nothing for this long, while calls wait for it, is no longer asked: opening a window takes
time on a busy machine; a program that did not answer before is likely to be stuck."""
AT_ONCE = 64
"""Most calls that wait for one program at a time."""
_CHUNK = 1 << 20


class BusError(Exception):
    """The bus does not exist, or has ended."""


class Bus:
    """One connection; for one thread at a time.

    Raises:
        BusError: The bus does not answer.
    """

    def __init__(self, address: str, seconds: float = 5.0) -> None:
        self._socket = _connect(address, seconds)
        self._serial = 0
        self._received = bytearray()
        self.silent: set[str] = set()
        """Programs that gave no answer in time since this set was last cleared."""
        self._silent_before: set[str] = set()
        try:
            _authenticate(self._socket)
            hello = Call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
            if self.ask([hello], time.monotonic() + seconds)[0] is None:
                raise BusError(f"the bus {address} does not welcome anyone")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def ask(self, calls: Sequence[Call], deadline: float) -> list[MethodReply | None]:
        """Sends all calls at once and returns the answers.

        Args:
            calls: The calls, each with its destination.
            deadline: When to stop waiting, by the monotonic clock.

        Returns:
            The answers, in the order of the calls; None for an error, or when no answer came in time.

        Raises:
            BusError: The connection has ended.
        """
        answers: list[MethodReply | None] = [None] * len(calls)
        waiting: dict[str, deque[int]] = defaultdict(deque)
        for place, call in enumerate(calls):
            waiting[call.destination].append(place)
        asked: dict[int, int] = {}
        open_questions = dict.fromkeys(waiting, 0)
        heard = dict.fromkeys(waiting, time.monotonic())
        out = bytearray()
        while True:
            now = time.monotonic()
            for name in [name for name, since in heard.items() if now - since > self._patience(name) or now > deadline]:
                if waiting[name] or open_questions[name]:
                    self.silent.add(name)
                    self._silent_before.add(name)
                waiting[name].clear()
                open_questions[name] = 0
                del heard[name]
            for name in heard:
                queue = waiting[name]
                while queue and open_questions[name] < AT_ONCE:
                    place = queue.popleft()
                    self._serial = self._serial % 0xFFFF_FFF0 + 1
                    asked[self._serial] = place
                    out += dbus_format.encode(calls[place], self._serial)
                    open_questions[name] += 1
            if not any(open_questions[name] for name in heard):
                return answers
            for reply_to, reply in self._exchange(out, 0.05):
                if (place := asked.pop(reply_to, -1)) < 0:
                    continue
                name = calls[place].destination
                self._silent_before.discard(name)
                if name in heard:
                    open_questions[name] -= 1
                    heard[name] = time.monotonic()
                if reply is not None and not reply.error:
                    answers[place] = reply
                if not waiting[name] and not open_questions[name]:
                    heard.pop(name, None)

    def _patience(self, name: str) -> float:
        return SILENT_BEFORE_SECONDS if name in self._silent_before else SILENCE_SECONDS

    def _exchange(self, out: bytearray, seconds: float) -> list[tuple[int, MethodReply | None]]:
        """Sends what can be sent, and returns what has come."""
        try:
            readable, writable, _ = select.select([self._socket], [self._socket] if out else [], [], seconds)
            if writable:
                del out[: self._socket.send(out)]
            if readable:
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise BusError("the bus has ended the connection")
                self._received += data
        except BlockingIOError:
            return []
        except OSError as error:
            raise BusError(f"the bus is gone: {error.strerror}") from error
        found, start = [], 0
        try:
            while True:
                end, reply_to, reply = dbus_format.decode(self._received, start)
                if not end:
                    break
                start = end
                if reply_to:
                    found.append((reply_to, reply))
        except (ValueError, IndexError) as error:
            raise BusError(f"the bus does not speak D-Bus: {error}") from error
        del self._received[:start]
        return found


def _connect(address: str, seconds: float) -> socket.socket:
    """Connects to the first unix socket of a D-Bus address."""
    for option in address.split(";"):
        transport, _, pairs = option.partition(":")
        values = dict(pair.split("=", 1) for pair in pairs.split(",") if "=" in pair)
        path = unquote(values.get("path", "")) or (f"\0{unquote(values['abstract'])}" if "abstract" in values else "")
        if transport == "unix" and path:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.settimeout(seconds)
                user.with_id_of_user(partial(connection.connect, path))
            except OSError as error:
                connection.close()
                raise BusError(f"the bus {address} is not there: {error.strerror}") from error
            return connection
    raise BusError(f"the bus's address {address!r} names no socket")


def _authenticate(connection: socket.socket) -> None:
    try:
        connection.sendall(b"\0AUTH EXTERNAL " + str(user.the_user().uid).encode().hex().encode() + b"\r\n")
        answer = connection.recv(256)
        if not answer.startswith(b"OK "):
            raise BusError(f"the bus refuses this user: {answer.decode('ascii', 'replace').strip()}")
        connection.sendall(b"BEGIN\r\n")
        connection.setblocking(False)
    except OSError as error:
        raise BusError(f"the bus does not answer: {error.strerror or error}") from error
