"""Whether and when a failed model call is tried again: a pure decision. Sends nothing and sleeps nowhere."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from rollout_tasks.errors import FailureClass

RETRIED_STATUSES = frozenset({408, 409, 429})
"""Besides every status from 500 up."""
LONGEST_BACKOFF = 30.0
"""Seconds; the waits are 1, 2, 4, ... at most, each drawn from zero up so that rollouts do not come back at once."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds; an endpoint that wants a longer pause is as good as gone for this call."""


@dataclass(frozen=True, slots=True)
class FailedTry:
    """What went wrong in one try."""

    sentence: str
    failure_class: FailureClass
    """The call's class if it ends with this try."""
    retried: bool = True
    retry_after: float | None = None
    """Seconds the endpoint asked for."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Try again after `delay` seconds, or give up with `sentence`."""

    delay: float | None
    sentence: str


def decide(failed: FailedTry, tries: int, max_tries: int, draw: Callable[[], float] = random.random) -> Decision:
    """Says what follows a failed try.

    Args:
        failed: The try.
        tries: Tries made so far, this one included.
        max_tries: Tries a call may have.
        draw: A number in [0, 1).
    """
    if not failed.retried:
        return Decision(None, failed.sentence)
    if failed.retry_after is not None and failed.retry_after > LONGEST_RETRY_AFTER:
        wish = f"it asks to wait {failed.retry_after:.0f} s, more than the {LONGEST_RETRY_AFTER:.0f} s waited here"
        return Decision(None, f"{failed.sentence}; {wish}")
    if tries >= max_tries:
        return Decision(None, f"{failed.sentence} (try {tries} of {max_tries})" if max_tries > 1 else failed.sentence)
    if failed.retry_after is not None:
        return Decision(failed.retry_after * (1 + 0.25 * draw()), failed.sentence)
    return Decision(min(LONGEST_BACKOFF, 2.0 ** min(tries - 1, 10)) * draw(), failed.sentence)


def retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or an HTTP date; None when it says nothing readable."""
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
