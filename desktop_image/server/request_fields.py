"""Reads the fields of a request; missing fields and wrong types are bad requests."""

from __future__ import annotations

import os
from typing import Any

from flask import request

from .problems import bad_request


def body() -> dict[str, Any]:
    """Returns the JSON object of a request, whatever its content type."""
    values = request.get_json(force=True, silent=True)
    if not isinstance(values, dict):
        raise bad_request(f"{request.path} wants a JSON object")
    return values


def text(values: dict[str, Any], name: str) -> str:
    """Returns a text that must be present."""
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"{request.path} wants a text {name!r}")
    return value


def seconds(values: dict[str, Any], name: str, default: float, most: float) -> float:
    """Returns a number of seconds, at most `most`."""
    value = values.get(name, default)
    if not isinstance(value, int | float) or value < 0:
        raise bad_request(f"{request.path} wants {name!r} as a number of seconds")
    return min(float(value), most)


def form_path(name: str) -> str:
    """Returns a path from a form, with ``~`` and variables filled in."""
    value = request.form.get(name)
    if not value:
        raise bad_request(f"{request.path} wants a form field {name!r}")
    return expanded(value)


def expanded(path: str) -> str:
    """Returns a path with ``~`` and variables filled in."""
    return os.path.expandvars(os.path.expanduser(path))
