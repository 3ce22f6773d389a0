"""Whether a failed request is worth another try, and how long to wait before. Sends nothing, and sleeps nowhere."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime


def pause(
    tries: int,
    *,
    first: float,
    longest: float,
    requested_pause: float | None = None,
    draw: Callable[[], float] = random.random,
) -> float:
    """Returns the seconds to wait after a failed try, drawn so that many clients do not come back at the same time.

    Args:
        tries: The tries so far; each doubles the longest pause.
        first: The longest pause after the first try.
        longest: The longest pause of all.
        requested_pause: What the server asked for, from `retry_after`; it is kept, and up to a quarter of it added.
        draw: Returns a number in [0, 1).
    """
    if requested_pause is not None:
        return requested_pause * (1 + 0.25 * draw())
    return min(longest, first * 2.0 ** min(tries - 1, 30)) * draw()


def passing(status: int) -> bool:
    """Returns whether an HTTP status says that the same request may succeed later."""
    return status in (408, 409, 425, 429) or status >= 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a response's Retry-After asks for, if they are more than 0; None uses the backoff.

    A date is compared with the response's own, as the clocks of two machines may differ; without one, with this machine's.
    """
    wanted = headers.get("retry-after", "")
    try:
        seconds = float(wanted)
    except ValueError:
        until, sent = _moment(wanted), _moment(headers.get("date", ""))
        if until is None:
            return None
        seconds = until - (time.time() if sent is None else sent)
    return seconds if 0 < seconds < math.inf else None


def _moment(date: str) -> float | None:
    """Returns an HTTP date as seconds since the epoch; None if it is not a date."""
    try:
        moment = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
