"""How a call says that it failed."""

from __future__ import annotations

from http import HTTPStatus


class Problem(Exception):
    """Something the caller is told in one sentence."""

    def __init__(self, sentence: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        super().__init__(sentence)
        self.status = int(status)


def bad_request(sentence: str) -> Problem:
    """What was asked for makes no sense."""
    return Problem(sentence, HTTPStatus.BAD_REQUEST)


def not_found(sentence: str) -> Problem:
    """What was asked for is not there."""
    return Problem(sentence, HTTPStatus.NOT_FOUND)


def too_late(sentence: str) -> Problem:
    """It did not happen before the deadline."""
    return Problem(sentence, HTTPStatus.GATEWAY_TIMEOUT)
