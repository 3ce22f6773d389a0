"""The service inside a cell: answers a worker's calls one after the other, and asks the worker for what only it can get.

Methods may raise anything: the error becomes the answer. This module protects nothing; the isolation around it does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

from rollout_tasks.cells.channel import ChannelEnded, MessageChannel
from rollout_tasks.cells.template import INTERRUPT_SIGNAL

Content = Iterable[bytes]
Answer = tuple[Any, Content | None]
"""A JSON value, and bytes that go with it."""


class CallInterrupted(BaseException):
    """The worker no longer waits for the call's answer."""


class RequestFailed(Exception):
    """The worker could not do what it was asked for; the message says why."""


class CellService:
    """Serves one channel."""

    def __init__(self, channel: MessageChannel, methods: Mapping[str, Callable[..., Answer]]) -> None:
        """Answers nothing yet.

        Args:
            channel: The channel to the worker.
            methods: Methods that may be called; each takes JSON values by name.
        """
        self._channel = channel
        self._methods = methods
        self._sending = threading.RLock()
        self._interruptible = False
        self._interrupted_late = False
        signal.signal(INTERRUPT_SIGNAL, self._interrupted)

    def run(self) -> None:
        """Answers calls until the worker is gone."""
        try:
            while True:
                call = self._channel.receive()
                if "call" in call:  # else it is the late answer to a question of a call that was interrupted
                    self._answer(call)
        except ChannelEnded:
            os._exit(0)

    def ask(self, what: str, arguments: Mapping[str, Any], take: Callable[[bytes], object]) -> Any:
        """Asks the worker to do something, during a call.

        Args:
            what: The worker's name for it.
            arguments: JSON values by name.
            take: Called with each piece of the bytes that come with the answer.

        Returns:
            The worker's answer.

        Raises:
            RequestFailed: The worker cannot do it, or refuses.
        """
        with self._sending:
            self._send({"ask": what, "arguments": dict(arguments)}, None)
            answer = self._channel.receive(take)
        if "error" in answer:
            raise RequestFailed(str(answer["error"]))
        return answer.get("value")

    def ask_for_bytes(self, what: str, arguments: Mapping[str, Any]) -> tuple[Any, bytes]:
        """Does the same as `ask`, and returns the bytes as a whole.

        Raises:
            RequestFailed: The worker cannot do it, or refuses.
        """
        received = bytearray()
        return self.ask(what, arguments, received.extend), bytes(received)

    def tell(self, what: str, content: bytes) -> None:
        """Sends the worker something that needs no answer."""
        with self._sending:
            self._send({"tell": what}, [content])

    def _send(self, message: dict[str, Any], content: Content | None) -> None:
        """Sends a message as a whole, even if it is interrupted meanwhile."""
        self._channel.send(message, content)
        if self._interrupted_late:
            self._interrupted_late = False
            raise CallInterrupted

    def _answer(self, call: Mapping[str, Any]) -> None:
        number = call.get("number")
        try:
            self._interruptible = True
            value, content = self._methods[str(call["call"])](**call["arguments"])
            self._interruptible = False
            self._send_answer({"value": value, "answer": number}, content)
        except CallInterrupted:
            self._interruptible = False
            self._send_answer({"error": "interrupted", "kind": CallInterrupted.__name__, "answer": number}, None)
        except ChannelEnded:
            raise
        except BaseException as error:  # noqa: BLE001 (the border between two processes: all of it is the answer)
            self._interruptible = False
            self._send_answer({"error": str(error), "kind": type(error).__name__, "answer": number}, None)

    def _send_answer(self, answer: dict[str, Any], content: Content | None) -> None:
        """Sends the answer as a whole or, if it cannot be sent, raises before the first byte."""
        if content is not None:
            content = [memoryview(piece).tobytes() for piece in content]
        self._interrupted_late = False
        with self._sending:
            self._channel.send(answer, content)

    def _interrupted(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._interruptible:  # no call is running
            return
        if not self._channel.usable:  # a message is being sent and must be completed
            self._interrupted_late = True
            return
        raise CallInterrupted
