"""Reads the JSON of a request within bounds: what a client sends is not trusted."""

from __future__ import annotations

from typing import Any

from rollout_tasks.strict_json import parse_json

DEEPEST = 64
"""Nesting of lists and objects; schemas of tools are the deepest that is sent."""
MOST_VALUES = 2_000_000
"""Values in one body, counted by the commas and brackets in it: each takes up to a hundred bytes of memory."""


class BadBodyError(ValueError):
    """A body that is not accepted; the message is one sentence."""


def read_object(body: bytes) -> dict[str, Any]:
    """Returns a body's JSON object.

    Raises:
        BadBodyError: It is not UTF-8, not JSON or not an object, is too deep, has too many values, or a number that is not one.
    """
    if len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise BadBodyError(f"the body has more than {MOST_VALUES:,} values")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadBodyError(f"the body is not UTF-8: byte {error.start} is invalid") from error
    try:
        value = parse_json(text)
    except RecursionError as error:
        raise BadBodyError(f"the body is nested more than {DEEPEST} deep") from error
    except ValueError as error:
        raise BadBodyError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadBodyError("the body must be a JSON object")
    if _deeper_than(value, DEEPEST):
        raise BadBodyError(f"the body is nested more than {DEEPEST} deep")
    return value


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True
