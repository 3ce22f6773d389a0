"""Polling: waits until a condition is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

LOOK_SECONDS = 0.05


def wait_until(look: Callable[[], Found], seconds: float, every: float = LOOK_SECONDS) -> Found:
    """Calls `look` until its result is true or the time is over; returns the last result."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(every)
    return found
