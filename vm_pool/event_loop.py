"""The base of connection relays: an event loop in its own thread, tasks that end together, closing with a reset."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

CLOSE_SECONDS = 10.0
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER value with which closing drops unsent data."""


class LoopThread:
    """An event loop in its own thread, started on first use.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
                try:
                    thread.start()
                except BaseException:  # no room for another thread
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop

    def close(self) -> None:
        """Ends the thread; end what runs on the loop first."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)
            if not thread.is_alive():
                loop.close()


class Tasks:
    """Tasks of a loop that end together; no task begins after that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = False
        self._loop = loop
        self._running: set[asyncio.Task[None]] = set()

    def begin_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins a task, from another thread."""
        asyncio.run_coroutine_threadsafe(self.begin(work), self._loop)

    async def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins a task."""
        if self.ended:
            work.close()
            return
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Ends all tasks, and returns once they have ended."""
        self.ended = True
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def shut(loop: asyncio.AbstractEventLoop, ending: Coroutine[Any, Any, None], what: str) -> None:
    """Runs what ends something on its loop, from another thread, and returns once it has ended.

    Args:
        loop: The loop.
        ending: Ends it.
        what: The thing, with its article.

    Raises:
        TimeoutError: The loop's thread is stuck.
    """
    try:
        asyncio.run_coroutine_threadsafe(ending, loop).result(CLOSE_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"{what} does not close within {CLOSE_SECONDS:g} s: its thread is stuck") from None


def drop(end: socket.socket) -> None:
    """Closes a connection with a reset: unsent data is dropped."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
