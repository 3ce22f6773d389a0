"""Turns pydantic's errors into one plain clause, such as "must be at least 1, got 0". Checks nothing itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

_SHOWN_CHARACTERS = 80
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_OWN_WORDS = "value_error"
"""The kind of errors raised by this project's validators, whose messages are complete."""

_TOO_SHORT = frozenset({"string_too_short", "too_short"})
"""Every limit of this kind is one character or one entry."""

_Context = Mapping[str, Any]
_BOUNDS: Mapping[str, Callable[[_Context], str]] = {
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']:g}",
    "greater_than": lambda limits: f"must be more than {limits['gt']:g}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']:g}",
    "less_than": lambda limits: f"must be less than {limits['lt']:g}",
    "literal_error": lambda limits: f"must be {limits['expected'].replace(chr(39), '')}",
    "enum": lambda limits: f"must be {limits['expected'].replace(chr(39), '')}",
    "string_pattern_mismatch": lambda limits: f"must match {limits['pattern']}",
}
_KEY = "[key]"
"""Pydantic's location of an error in a mapping's key."""
_TYPE_MESSAGES = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "path": "must be a path",
    "model": "must be a mapping of options",
    "dict": "must be a mapping",
    "tuple": "must be a list",
    "list": "must be a list",
    "finite": "must be a finite number",
}
"""Messages by the first word of the error's type."""


def clause(error: Mapping[str, Any], known: tuple[str, ...] = ()) -> str:
    """Returns what is wrong, to follow the value's name and a colon.

    Args:
        error: One of `pydantic.ValidationError.errors()`.
        known: The keys that exist, for the error about one that does not.
    """
    kind = str(error["type"])
    if _is_of_a_key(error):
        what = _BOUNDS[kind](error["ctx"]) if kind in _BOUNDS else "is not text"
        return f"has a key that {what}, got {shown(error['input'])}"
    if kind == _OWN_WORDS:
        return str(error["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        close = get_close_matches(str(error["loc"][-1]), known, n=1)
        return "is not an option" + (f"; did you mean {close[0]}?" if close else "")
    if kind == "missing":
        return "is missing"
    if kind in _TOO_SHORT:
        return "must not be empty"
    said = (
        _BOUNDS[kind](error["ctx"])
        if kind in _BOUNDS
        else _TYPE_MESSAGES.get(kind.split("_")[0], _lower(str(error["msg"])))
    )
    return f"{said}, got {shown(error['input'])}"


def location_of(error: Mapping[str, Any], values: object) -> tuple[int | str, ...]:
    """Returns the path to the wrong value; for a wrong key, the path to its mapping.

    Pydantic's own path also has the types of which a value may have one, such as ``constrained-float``: they are left out.

    Args:
        error: As for `clause`.
        values: What was validated.
    """
    location: tuple[int | str, ...] = tuple(error["loc"])
    if _is_of_a_key(error):
        location = location[: -1 if location[-1] != _KEY else -2]
    found: list[int | str] = []
    for part in location:
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list | tuple) and isinstance(part, int):
            values = values[part] if part < len(values) else None
        else:
            continue
        found.append(part)
    missing = error["type"] == "missing" and isinstance(location[-1], str)  # a list's number is there already
    return (*found, location[-1]) if missing else tuple(found)


def _is_of_a_key(error: Mapping[str, Any]) -> bool:
    return error["type"] == "invalid_key" or tuple(error["loc"])[-1:] == (_KEY,)


def shown(value: object) -> str:
    """Returns a value as messages show it: short, and numbers without the quotes that text would have."""
    text = value if isinstance(value, str) and _NUMBER.fullmatch(value) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
