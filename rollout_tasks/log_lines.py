"""Keeps logs to one printable line for each message: tasks, guests and endpoints choose part of what errors say."""

from __future__ import annotations

import logging

from rollout_tasks.unicode_text import one_line, printable


class Record(logging.LogRecord):
    """A log record whose text neither steers a terminal nor passes for further records."""

    _traceback: str | None = None

    def getMessage(self) -> str:  # noqa: N802 - logging's name
        """Returns the message, on one line."""
        message = super().getMessage()
        return message if message.isprintable() else one_line(message)

    @property
    def exc_text(self) -> str | None:
        """The traceback, which a formatter stores here; its lines stay."""
        return self._traceback

    @exc_text.setter
    def exc_text(self, text: str | None) -> None:
        self._traceback = text and printable(text)


def keep_to_one_line() -> None:
    """Has this process make all its log records so; for programs, as it is for all that is logged in the process."""
    logging.setLogRecordFactory(Record)
