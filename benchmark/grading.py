"""Has a judge grade many answers, several at a time; stops asking an endpoint that keeps failing."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from benchmark.errors import JudgeFailure
from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.score import Score

_GIVE_UP_AFTER = 10
"""After the endpoint fails on this many answers in a row, the remaining ones are not tried."""


class Grading:
    """Grades answers in threads; a context manager.

    Its end waits for all submitted answers; after an exception, only for those that have begun.
    """

    def __init__(self, judge: Judge | None = None) -> None:
        """Takes the judge; default: the one the environment names, created when the first answer is submitted."""
        self._judge = judge
        self._created_judge: Judge | None = None
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
        if self._created_judge is not None:
            self._created_judge.close()

    def submit(self, prediction: str, answer: str, item: Item) -> Future[Score | JudgeFailure]:
        """Has an answer graded as soon as a thread is free.

        Raises:
            BenchmarkError: No judge was given, and the environment does not name one.
        """
        if self._judge is None:
            self._judge = self._created_judge = Judge.from_environment()
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
