"""What a client is told in place of an answer: a status, and one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rollout_tasks.errors import FailureClass
from rollout_tasks.service.session_results import NoRoom, SessionEnded, SessionRefused, UnknownItem


class Refusal(Exception):
    """A call that is not answered as it was meant."""

    def __init__(self, status: int, sentence: str, failure_class: FailureClass | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        """The status of HTTP."""
        self.sentence = sentence
        self.failure_class = failure_class
        """Why a lease ended, where that is known."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turns what sessions raise into a `Refusal`."""
    try:
        yield
    except UnknownItem as error:
        raise Refusal(404, str(error)) from error
    except NoRoom as error:
        raise Refusal(503, str(error)) from error
    except SessionRefused as error:
        raise Refusal(409, str(error)) from error
    except SessionEnded as error:
        raise Refusal(410, f"the lease is over: {error}", error.failure_class) from error
