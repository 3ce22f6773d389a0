"""Reads what a request asks for; what is missing or of the wrong kind is the caller's problem."""

from __future__ import annotations

import os
from typing import Any

from flask import request

from .problems import bad_request


def body() -> dict[str, Any]:
    """The JSON object a request carries, whatever its content type says."""
    values = request.get_json(force=True, silent=True)
    if not isinstance(values, dict):
        raise bad_request(f"{request.path} wants a JSON object")
    return values


def text(values: dict[str, Any], name: str) -> str:
    """A text that must be there."""
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"{request.path} wants a text {name!r}")
    return value


def seconds(values: dict[str, Any], name: str, default: float, most: float) -> float:
    """A number of seconds, at most `most`."""
    value = values.get(name, default)
    if not isinstance(value, int | float) or value < 0:
        raise bad_request(f"{request.path} wants {name!r} as a number of seconds")
    return min(float(value), most)


def form_path(name: str) -> str:
    """A path out of a form, with ``~`` and variables filled in."""
    value = request.form.get(name)
    if not value:
        raise bad_request(f"{request.path} wants a form field {name!r}")
    return expanded(value)


def expanded(path: str) -> str:
    """A path with ``~`` and variables filled in."""
    return os.path.expandvars(os.path.expanduser(path))
