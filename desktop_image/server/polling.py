"""Waits for something that can be looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

LOOK_SECONDS = 0.05


def wait_until(look: Callable[[], Found], seconds: float, every: float = LOOK_SECONDS) -> Found:
    """Looks until what is found is true or the time is over; returns what was found last."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(every)
    return found
