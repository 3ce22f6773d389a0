"""Stops a worker's child that has a rollout: interrupts the episode and hands the rollout back.

Celery ends such a child with a signal, and the child exits wherever it is: an environment stays open, and the rollout's
message comes back only after its visibility timeout. Here the signal interrupts the episode, which then cleans up as
after any other interruption; the rollout's claim and its message are given back at once; then the child exits.

A worker that gives its rollouts time to finish sends its children no signal meanwhile. It announces that it stops in a
byte of memory that it shares with them, for rollouts that only wait: they are handed back instead.
"""

from __future__ import annotations

import mmap
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from billiard.common import _shutdown_cleanup as ends_child

from rollout_tasks.errors import FailureClass
from rollout_tasks.interruption import Interruption
from rollout_tasks.redis_client import let_celery_not_wait

STOPPING_TRIES = 3
"""How often a child that stops tries to reach Redis: it does not have long."""
_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
"""The signals that end a child: SIGTERM, or SIGQUIT with REMAP_SIGTERM; and SIGHUP, which a shell whose terminal is closed
sends to the worker and its children alike."""


class WorkerShutdown(BaseException):
    """This worker's child was told to stop; its work must not go on."""


@cache
def _stop_byte() -> mmap.mmap:
    """Returns memory that a worker shares with its children: 1 once the worker has been told to stop, else 0."""
    return mmap.mmap(-1, 1)


def set_worker_stops(stops: bool) -> None:
    """Tells the children that are forked after the first call whether their worker stops."""
    _stop_byte()[0] = int(stops)


def worker_stops() -> bool:
    """Whether this child's worker has been told to stop, whichever way."""
    return _stop_byte()[0] == 1


class ShutdownSignals:
    """While entered, the signals that end this child ask it to stop instead; outside a child, nothing changes."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._replaced: list[signal.Signals] = []
        self._episode: Interruption | None = None

    @property
    def requested(self) -> bool:
        """Whether the child was told to stop: such a signal came."""
        return self._signal is not None

    def __enter__(self) -> ShutdownSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is ends_child:
                    self._replaced.append(number)
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._replaced:
            signal.signal(number, ends_child)

    @contextmanager
    def interrupting(self, episode: Interruption) -> Iterator[None]:
        """Inside, a signal requests an interruption; code that must not be interrupted checks `requested` afterwards."""
        self._episode = episode
        try:
            self.raise_if_requested()
            yield
        finally:
            self._episode = None

    def raise_if_requested(self) -> None:
        """Raises `WorkerShutdown` if a signal came.

        Raises:
            WorkerShutdown: A signal came.
        """
        if self.requested:
            raise WorkerShutdown

    def end_child(self) -> None:
        """Ends the child as the signal would have done, if one came."""
        if self._signal is not None:
            ends_child(self._signal, None)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:  # already stopping
            return
        self._signal = number
        if self._episode is None:
            raise WorkerShutdown
        self._episode.request(FailureClass.WORKER_LOST, "this worker is stopping")


def put_message_back(delivery_tag: str) -> None:
    """Puts a delivered message back as the next one of its queue.

    Raises:
        OperationalError: The broker does not accept it; it comes back after its visibility timeout.
    """
    from rollout_tasks.app import app  # here, because it configures Celery from the environment

    let_celery_not_wait()
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=STOPPING_TRIES, interval_start=0.2, interval_step=0.2)
        connection.default_channel.qos.restore_by_tag(delivery_tag)
