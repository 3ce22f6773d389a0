"""A Valkey whose append-only file can lose its last second."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path

from tests.conftest import ValkeyServer

_LOOK_SECONDS = 0.05
_AWAY_SECONDS = 0.3
LOST_SECONDS = 1.0


class ForgetfulServer(ValkeyServer):
    """Notes how long its append-only file was when, so that it can be cut back to an earlier length."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._lengths: deque[tuple[float, Path, int]] = deque(maxlen=int(3 * LOST_SECONDS / _LOOK_SECONDS))
        self._closing = threading.Event()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Starts it, and the noting."""
        self.start()
        threading.Thread(target=self._note_lengths, name="append-only file", daemon=True).start()

    def end(self) -> None:
        """Stops both."""
        self._closing.set()
        with self._lock:
            self.kill()

    def come_back(self, *, lose_last_second: bool) -> None:
        """Is killed and started again on its port."""
        with self._lock:
            died = time.monotonic()
            self.kill()
            if lose_last_second:
                self._cut_back(died - LOST_SECONDS)
            time.sleep(_AWAY_SECONDS)
            if not self._closing.is_set():
                self.start()

    def _note_lengths(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            for path in self.directory.glob("appendonlydir/*.incr.aof"):
                self._lengths.append((time.monotonic(), path, path.stat().st_size))

    def _cut_back(self, until: float) -> None:
        kept = [(path, length) for at, path, length in self._lengths if at <= until]
        if not kept:
            raise RuntimeError("the server is not up for long enough to lose its last second")
        path, length = kept[-1]
        with path.open("r+b") as file:
            file.truncate(length)
