"""Decides whether and when a failed model call is tried again. Sends nothing, and sleeps nowhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmark.backoff import pause
from rollout_tasks.errors import FailureClass

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 30.0
"""Seconds: the longest pause after the first try, and the longest of all."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds; a call does not wait longer than this for its endpoint."""


@dataclass(frozen=True, slots=True)
class FailedTry:
    """What went wrong in one try."""

    sentence: str
    failure_class: FailureClass
    """The call's class if it ends with this try."""
    retried: bool = True
    retry_after: float | None = None
    """Seconds the endpoint asked for."""
    elsewhere: bool = True
    """Whether another server of the model might answer the same call well."""

    def at_another(self) -> FailedTry:
        """Returns the same where the next try goes to another server: what this one said of a next try counts no more."""
        return replace(self, retried=True, retry_after=None)


def too_slow(endpoint: object, seconds: float) -> FailedTry:
    """Returns the failure of an endpoint that gave no answer, or not all of it, in a call's time."""
    return FailedTry(f"{endpoint} did not answer within {seconds:g} s", FailureClass.MODEL_OVERLOAD)


def unreachable(endpoint: object, why: object) -> FailedTry:
    """Returns the failure of an endpoint to which no connection is made, or whose connection breaks."""
    return FailedTry(f"{endpoint} cannot be reached: {why}", FailureClass.MODEL_OVERLOAD)


def no_reply(endpoint: object, why: object) -> FailedTry:
    """Returns the failure of an endpoint that answered something that is not a reply; `why` completes "it answered"."""
    return FailedTry(f"{endpoint} answered {why}", FailureClass.MODEL)


KEY_IN_REPLY = "with the key, where no key can be"
"""Why a text is not a reply that would be one without the key."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Try again after `delay` seconds, or give up with `sentence`."""

    delay: float | None
    sentence: str


def decide(failed: FailedTry, tries: int, max_tries: int, draw: Callable[[], float] = random.random) -> Decision:
    """Returns what follows a failed try.

    Args:
        failed: The try.
        tries: Tries made so far, this one included.
        max_tries: Tries a call may have.
        draw: A number in [0, 1).
    """
    if not failed.retried:
        return Decision(None, failed.sentence)
    if failed.retry_after is not None and failed.retry_after > LONGEST_RETRY_AFTER:
        too_long = (
            f"it asks for a wait of {failed.retry_after:.0f} s, longer than the limit of {LONGEST_RETRY_AFTER:.0f} s"
        )
        return Decision(None, f"{failed.sentence}; {too_long}")
    if tries >= max_tries:
        return Decision(None, f"{failed.sentence} (try {tries} of {max_tries})" if max_tries > 1 else failed.sentence)
    delay = pause(tries, first=FIRST_BACKOFF, longest=LONGEST_BACKOFF, requested_pause=failed.retry_after, draw=draw)
    return Decision(delay, failed.sentence)
