"""Many answers for one judge, several at a time; an endpoint that fails again and again is not asked for the rest."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from benchmark.errors import JudgeFailure
from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.metrics import Score

_GIVE_UP_AFTER = 10
"""Answers in a row that the endpoint failed before the remaining ones are not tried any more."""


class Grading:
    """Answers that are being graded; a context manager.

    Leaving it waits for the answers that were submitted; when an exception leaves it, only for those that have begun.
    """

    def __init__(self, judge: Judge | None = None) -> None:
        """Takes the judge; default: the one that the environment names, made when there is something to grade."""
        self._judge = judge
        self._own: Judge | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._counting = threading.Lock()
        self._failed_in_a_row = 0
        self._given_up: JudgeFailure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=kind is not None)
        if self._own is not None:
            self._own.close()

    def submit(self, prediction: str, answer: str, item: Item) -> Future[Score | JudgeFailure]:
        """Has an answer graded as soon as there is a thread for it.

        Raises:
            BenchmarkError: There is no judge, and the environment names none.
        """
        if self._judge is None:
            self._judge = self._own = Judge.from_environment()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._judge.config.concurrency, thread_name_prefix="judge")
        return self._threads.submit(self._grade, self._judge, prediction, answer, item)

    def _grade(self, judge: Judge, prediction: str, answer: str, item: Item) -> Score | JudgeFailure:
        known = judge.known(prediction, answer, item)
        if known is not None:
            return known
        given_up = self._given_up
        if given_up is not None:
            return JudgeFailure(given_up.failure_class, f"not asked any more, since {given_up}")
        try:
            graded: Score | JudgeFailure = judge.ask(prediction, answer, item)
        except JudgeFailure as failure:
            graded = failure
        self._count(graded)
        return graded

    def _count(self, graded: Score | JudgeFailure) -> None:
        with self._counting:
            if not isinstance(graded, JudgeFailure) or graded.failure_class == "parse":
                self._failed_in_a_row = 0
                return
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= _GIVE_UP_AFTER and self._given_up is None:
                self._given_up = graded
