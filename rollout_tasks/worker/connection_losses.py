"""Says the loss of a connection to Redis in one line of the log, where Celery and kombu add a traceback of their own code."""

from __future__ import annotations

import logging
from typing import Any

import redis
from kombu.exceptions import OperationalError

from rollout_tasks.unicode_text import one_line

_LOSSES = (redis.ConnectionError, redis.TimeoutError, OperationalError, ConnectionError)
_ABOUT_CONNECTIONS = ("celery.worker", "celery.bootsteps", "kombu")
_WHOLE = ("Task handler raised error", "Unrecoverable error")
"""How messages of `celery.worker` begin that are about a task, or about the worker's own end: they keep their traceback."""
_WARNINGS = "py.warnings"
_ADVICE = "You can enable this behavior using the worker_cancel_long_running_tasks_on_connection_loss"
"""What Celery warns of at each loss: a setting that is chosen otherwise on purpose (celeryconfig.py)."""


class OneLine(logging.Filter):
    """Shortens records about lost connections to their message and the error's, and leaves out the advice that comes with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shortens a record, if it is one of those; returns whether it is to be logged."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _LOSSES) and _is_about_connections(record):
            message, reason = one_line(record.getMessage()), one_line(str(error)) or type(error).__name__
            record.msg, record.args = message if reason in message else f"{message}: {reason}", None
            record.exc_info = record.exc_text = None
        return record.name != _WARNINGS or _ADVICE not in " ".join(record.getMessage().split())


def _is_about_connections(record: logging.LogRecord) -> bool:
    of_celery = any(record.name == name or record.name.startswith(f"{name}.") for name in _ABOUT_CONNECTIONS)
    return of_celery and not str(record.msg).startswith(_WHOLE)


def shorten(logger: logging.Logger, **_signal: Any) -> None:
    """Has all handlers of a logger, as the one that Celery has just set up, shorten such records."""
    for handler in logger.handlers:
        handler.addFilter(OneLine())
