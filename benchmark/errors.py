"""Errors of the benchmark package; each message is one sentence that says what is wrong and where."""

from __future__ import annotations


class BenchmarkError(ValueError):
    """A benchmark file, an option or a set of results is wrong."""


class UnknownMetric(BenchmarkError):
    """No metric has that name."""


class JudgeFailure(Exception):
    """The judging model gave no verdict. This says nothing about the answer, so the answer gets no score."""

    def __init__(self, failure_class: str, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class
