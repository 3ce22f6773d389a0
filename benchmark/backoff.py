"""How long to wait before a failed request is sent again. Sends nothing, and sleeps nowhere."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime


def pause(
    tries: int,
    *,
    first: float,
    longest: float,
    asked: float | None = None,
    draw: Callable[[], float] = random.random,
) -> float:
    """Returns the seconds to wait after a failed try, drawn so that many clients do not come back at the same time.

    Args:
        tries: The tries so far; each doubles the longest pause.
        first: The longest pause after the first try.
        longest: The longest pause of all.
        asked: What the server asked for, from `retry_after`; it is kept, and up to a quarter of it added.
        draw: Returns a number in [0, 1).
    """
    if asked is not None:
        return asked * (1 + 0.25 * draw())
    return min(longest, first * 2.0 ** min(tries - 1, 30)) * draw()


def retry_after(header: str | None) -> float | None:
    """Returns the seconds that a Retry-After header asks for, as a number or an HTTP date; None if it is unreadable."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
