"""Ctrl-C for a program with running work: the first finishes that work, the second and SIGTERM stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from rich.console import Console

from rollout_tasks.ignored_exceptions import noticed_if_ignored

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Has signals that come inside handled at the end, so that nothing is made without being registered.

    Blocking them would not do in a program with several threads: one that does not block a signal gets it, and Python calls the
    handler in the main thread all the same.
    """
    came: list[int] = []
    with ExitStack() as afterwards:
        if threading.current_thread() is threading.main_thread():  # elsewhere no handler is ever called
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None:  # else it is not Python's
                    afterwards.callback(_handle_again, number, handler, came)
                    signal.signal(number, lambda number, _frame: came.append(number))
        yield


def _handle_again(number: int, handler: Any, came: list[int]) -> None:
    """Restores the handler of a signal, and calls it as often as the signal came."""
    signal.signal(number, handler)
    for _ in range(came.count(number)):
        signal.raise_signal(number)


class StopRequested(BaseException):
    """The user wants the program to end at once; like `KeyboardInterrupt`, this is not an error."""


class CtrlC:
    """Counts the signals and records what they ask for."""

    def __init__(self) -> None:
        self.count = 0
        self.finish_first = False
        """Whether the first Ctrl-C finishes running work; False until there is work, and Ctrl-C then stops at once."""
        self.drain_wanted = False
        self.stop_now = False
        self._raised = False
        self._told: set[str] = set()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if number == signal.SIGINT and self.finish_first and not self.drain_wanted:
            self.drain_wanted = True
            return
        self.stop_now = True
        if not self._raised:  # a second one would come out of the cleaning up that the first began
            self._raised = True
            raise StopRequested

    def check(self) -> None:
        """Ends the program if a signal has asked for it and Python ignored what the handler raised.

        It does so in a weak reference's callback, for example. To be called between steps.

        Raises:
            StopRequested: A signal has asked for it.
        """
        if self.stop_now:
            self._raised = True
            raise StopRequested

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handles the signals, but a hang-up that nohup has had ignored stays so.

        Restores the old handlers only if no signal came: otherwise the program is ending.
        """
        # Not so SIGINT, which shells have every program in the background ignore: it is how scripts end a run.
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heard = [number for number in SIGNALS if not (nohup and number is signal.SIGHUP)]
        before = {number: signal.signal(number, self._handle) for number in heard}
        try:
            with noticed_if_ignored(StopRequested, self._was_ignored):
                yield
        finally:
            if self.count == 0:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _was_ignored(self) -> None:
        self._raised = False  # `check` raises it again, or the next signal

    def ignore(self) -> None:
        """Ignores the signals from now on: cleaning up has its own deadlines."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def tell(self, console: Console, sentence: str) -> None:
        """Prints a sentence, once."""
        if sentence not in self._told:
            self._told.add(sentence)
            console.print(sentence, highlight=False, soft_wrap=True)
