"""What relays of connections share: an event loop in a thread of its own, tasks that end together, and the end of a socket."""

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
"""SO_LINGER value with which closing drops what is still on its way."""


class LoopThread:
    """An event loop in a thread, started when it is first asked for.

    Args:
        name: The thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Ends the thread; what runs on the loop should be ended before."""
        with self._guard:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)
            if not thread.is_alive():
                loop.close()


class Tasks:
    """Tasks of a loop that end together; none begins after that."""

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
        """Ends them all; when it returns, they have."""
        self.ended = True
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def drop(end: socket.socket) -> None:
    """Closes a connection with a reset: what waits in it is not sent any more."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
