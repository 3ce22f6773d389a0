"""Errors that a call to the server returns."""

from __future__ import annotations

from http import HTTPStatus


class Problem(Exception):
    """An error that the caller gets as one sentence."""

    def __init__(self, sentence: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        super().__init__(sentence)
        self.status = int(status)


def bad_request(sentence: str) -> Problem:
    """Returns the problem of a request that makes no sense."""
    return Problem(sentence, HTTPStatus.BAD_REQUEST)


def not_found(sentence: str) -> Problem:
    """Returns the problem of a request for something that does not exist."""
    return Problem(sentence, HTTPStatus.NOT_FOUND)


def too_late(sentence: str) -> Problem:
    """Returns the problem of something that did not happen before the deadline."""
    return Problem(sentence, HTTPStatus.GATEWAY_TIMEOUT)
