"""Sends commands to a session's process without ever waiting for it: one that is stopped reads nothing."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress

from rollout_tasks.cells.channel import ChannelEnded, MessageChannel

logger = logging.getLogger(__name__)


class CommandSender:
    """Sends over one channel, in order. Threads may share it. Whether the other side is gone is seen by whoever listens to it."""

    def __init__(self, channel: MessageChannel) -> None:
        """Takes the channel, to which nobody else sends."""
        self._channel = channel
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        """What was not taken at once; a thread sends it."""

    def send(self, frame: bytes) -> None:
        """Sends a command, as of `frame_of`."""
        with self._lock, suppress(ChannelEnded):
            if not self._unsent:
                frame = self._channel.send_at_once(frame)
            if frame:
                self._unsent.append(frame)
            if frame and len(self._unsent) == 1:
                self._start_thread()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._send_rest, name="unsent commands", daemon=True).start()
        except RuntimeError as error:  # no more threads: a process that cannot be told anything is given up
            logger.error("commands to a session's process cannot be sent: %s", error)
            self._channel.end()

    def _send_rest(self) -> None:
        with suppress(ChannelEnded):
            while True:
                self._channel.send_rest(self._unsent[0])
                with self._lock:
                    self._unsent.popleft()
                    if not self._unsent:
                        return  # the next one that is not taken at once has another thread
