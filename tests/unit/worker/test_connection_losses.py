"""What a worker's log says of a lost connection, in records as Celery and kombu make them."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator

import pytest
import redis
from celery import bootsteps
from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer.consumer import CANCEL_TASKS_BY_DEFAULT
from kombu.exceptions import OperationalError
from kombu.message import Message

from rollout_tasks.redis_connections import RedisRefuses
from rollout_tasks.worker.connection_losses import OneLine, shorten

REFUSED = "Error 111 connecting to 127.0.0.1:6379. Connection refused."


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a handler as Celery sets it up writes."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.Logger("a root")
    root.addHandler(handler)
    shorten(logger=root, sender=None, loglevel=logging.INFO)
    loggers = [logging.getLogger(name) for name in ("celery", "kombu", "rollout_tasks", "py.warnings")]
    for logger in loggers:
        logger.addHandler(handler)
    yield written
    for logger in loggers:
        logger.removeHandler(handler)


def raised(logger: str, message: str, error: Exception, *args: object) -> None:
    try:
        raise error
    except type(error):
        logging.getLogger(logger).error(message, *args, exc_info=True)


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError(REFUSED),
        redis.TimeoutError(REFUSED),
        RedisRefuses(REFUSED),
        OperationalError(REFUSED),
        ConnectionResetError(REFUSED),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    "logger", ["celery.worker.consumer.consumer", "celery.bootsteps", "kombu.transport.redis", "kombu"]
)
def test_a_loss_is_one_line_with_its_reason(log: io.StringIO, logger: str, error: Exception) -> None:
    raised(logger, "Control command error", error)

    assert log.getvalue() == f"ERROR Control command error: {REFUSED}\n"


def test_a_reason_that_is_said_already_is_not_repeated(log: io.StringIO) -> None:
    error = redis.ConnectionError(f"{REFUSED}\nand 100 % more")
    raised("celery.worker.consumer", "Callback %r raised exception: %s", error, "read", error)

    assert log.getvalue() == f"ERROR Callback 'read' raised exception: {REFUSED} and 100 % more\n"


def test_a_message_that_cannot_be_acknowledged_is_one_line(log: io.StringIO) -> None:
    class LostChannel:
        no_ack_consumers = None

        def basic_ack(self, *_: object, **__: object) -> None:
            raise redis.ConnectionError(REFUSED)

    message = Message(channel=LostChannel(), delivery_tag="7")
    message.ack_log_error(logging.getLogger("celery.worker.request"), (redis.ConnectionError,))

    assert log.getvalue() == f"CRITICAL Couldn't ack '7', reason:network:ConnectionError: {REFUSED}\n"


def test_a_step_that_fails_to_restart_is_one_line(log: io.StringIO) -> None:
    class Gone(bootsteps.StartStopStep):  # type: ignore[misc]
        alias = "Gone"

        def stop(self, _parent: object) -> None:
            raise redis.ConnectionError(REFUSED)

    class Parent:
        pass

    parent = Parent()
    parent.steps = [Gone(parent)]  # type: ignore[attr-defined]
    bootsteps.Blueprint(name="a blueprint").restart(parent)

    assert log.getvalue() == f"ERROR Error on restarting Gone: network:ConnectionError: {REFUSED}\n"


@pytest.mark.parametrize(
    ("logger", "message", "error"),
    [
        ("celery.worker.consumer", "Callback raised", ValueError("a defect")),
        ("celery.worker.consumer", "Callback raised", OSError(28, "No space left on device")),
        ("celery.worker.request", "Task handler raised error: %r", redis.ConnectionError(REFUSED)),
        ("celery.worker", "Unrecoverable error: %r", BrokenPipeError(32, "Broken pipe")),
        ("celery.app.trace", "Task rollout raised unexpected", redis.ConnectionError(REFUSED)),
        ("celery.workers", "another program's", redis.ConnectionError(REFUSED)),
        ("rollout_tasks.execution.rollout", "a rollout failed", redis.ConnectionError(REFUSED)),
    ],
)
def test_every_other_record_keeps_its_traceback(log: io.StringIO, logger: str, message: str, error: Exception) -> None:
    raised(logger, message, error)

    assert log.getvalue().startswith(f"ERROR {message}")
    assert "Traceback (most recent call last)" in log.getvalue()


def test_records_without_an_error_stay_as_they_are() -> None:
    record = logging.LogRecord("celery.worker", logging.INFO, __file__, 1, "Connected to %s", ("redis",), None)

    assert OneLine().filter(record)
    assert (record.msg, record.args) == ("Connected to %s", ("redis",))


def test_the_advice_at_each_loss_is_left_out_and_no_other(log: io.StringIO) -> None:
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(CANCEL_TASKS_BY_DEFAULT, CPendingDeprecationWarning, stacklevel=1)
            warnings.warn("another one", CPendingDeprecationWarning, stacklevel=1)
    finally:
        logging.captureWarnings(False)

    assert "another one" in log.getvalue()
    assert log.getvalue().count("CPendingDeprecationWarning: ") == 1
