"""Stops an episode from outside, even inside a call that has no timeout.

The episode runs in the main thread of a prefork child, where a signal interrupts almost anything. The alarm is set to
the attempt's wall time; a heartbeat thread may trigger it early, with a reason. Cleaning up happens after the scope, with
its own alarm. A part of an attempt with a shorter deadline uses `time_limit`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rollout_tasks.errors import EpisodeInterrupted, FailureClass

_RING_AGAIN_SECONDS = 2.0
"""An interruption that a library swallowed, or that came just before a wait began, is raised again after this."""
_AT_ONCE_SECONDS = 1e-6
"""The shortest alarm: 0 would be none."""

_CLOCK_SECONDS = 0.01
"""How much too early the alarm may ring."""


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Ignores an alarm that nobody waits for."""


class Interruption:
    """Interrupts one attempt: `request` from any thread; `scope` in the main thread around what may be interrupted."""

    def __init__(self, *, heeds_requests: bool = True) -> None:
        """Starts outside a scope.

        Args:
            heeds_requests: Whether `request` has an effect. Cleaning up must not be interrupted by what has ended the rest.
        """
        self._heeds_requests = heeds_requests
        self._armed = False
        self._reason: tuple[FailureClass, str] | None = None
        self.hard_deadline: float | None = None
        """Monotonic time by which the code in the scope must have ended: past it only killing the process helps."""

    @property
    def requested(self) -> bool:
        """Whether the attempt was asked to stop."""
        return self._reason is not None

    def request(self, failure_class: FailureClass, message: str) -> None:
        """Asks the attempt to stop; interrupts the scope if one is active, and again until it ends. The first reason stays."""
        if not self._heeds_requests:
            return
        if self._reason is None:
            self._reason = (failure_class, message)
        if self._armed:
            # One signal could be lost: one that comes just before a call begins to wait does not end its wait. If the scope ends
            # meanwhile, what still rings is ignored, and the next scope sets the alarm anew.
            signal.setitimer(signal.ITIMER_REAL, _AT_ONCE_SECONDS, _RING_AGAIN_SECONDS)

    def raise_if_requested(self) -> None:
        """Raises the requested interruption, if any.

        Raises:
            EpisodeInterrupted: With the reason given to `request`.
        """
        if self._reason is not None:
            raise EpisodeInterrupted(*self._reason)

    @contextmanager
    def scope(self, seconds: float, failure_class: FailureClass, message: str, *, grace: float) -> Iterator[None]:
        """Limits what runs inside to `seconds` of wall time.

        Args:
            seconds: The limit.
            failure_class: The class when the limit passes.
            message: The sentence when the limit passes.
            grace: Seconds from the limit to `hard_deadline`.

        Raises:
            EpisodeInterrupted: The limit passed, or a stop was requested.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("rollouts run in a process's main thread: use the prefork pool")
        overdue = False
        until = time.monotonic() + seconds

        def ring(_signal: int, _frame: FrameType | None) -> None:
            nonlocal overdue
            if not self._armed:
                return
            self.raise_if_requested()
            # An early alarm comes from `request` of an attempt that has ended meanwhile.
            if time.monotonic() < until - _CLOCK_SECONDS:
                return
            overdue = True
            raise EpisodeInterrupted(failure_class, message)

        before = signal.signal(signal.SIGALRM, ring)
        self.hard_deadline = until + grace
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, _RING_AGAIN_SECONDS)
            self.raise_if_requested()
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            # A signal that `request` still sends would end the process.
            signal.signal(signal.SIGALRM, _nothing if before is signal.SIG_DFL else before)
            self.hard_deadline = None
        if overdue:
            raise EpisodeInterrupted(failure_class, message)


@contextmanager
def time_limit(seconds: float, failure_class: FailureClass, message: str) -> Iterator[None]:
    """Limits a part of what a scope limits; the scope's own alarm still works inside. May be nested.

    Args:
        seconds: The part's wall time.
        failure_class: The class when it passes.
        message: The sentence when it passes.

    Raises:
        EpisodeInterrupted: The time passed, or the surrounding scope was interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a time limit works in a process's main thread only")
    began = time.monotonic()
    overdue = ended = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal overdue
        if not ended and time.monotonic() - began >= seconds:
            overdue = True
            raise EpisodeInterrupted(failure_class, message)
        if callable(before):
            before(number, frame)

    before = signal.getsignal(signal.SIGALRM)  # known before `ring` may be called
    signal.signal(signal.SIGALRM, ring)
    outer, again = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.setitimer(signal.ITIMER_REAL, min(seconds, outer or seconds), _RING_AGAIN_SECONDS)
        yield
    finally:
        ended = True
        left = max(outer - (time.monotonic() - began), 0.001) if outer else 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, again)
    if overdue:
        raise EpisodeInterrupted(failure_class, message)
