"""JSON whose numbers are numbers: neither NaN nor an infinity, nor so long that Python cannot make a float of it."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DIGITS = 100
"""Digits of a whole number; more than about 300 cannot become a float."""


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: It is not JSON, or has a number that is not one or is too long.
        RecursionError: It is nested more deeply than Python can read.
    """
    return json.loads(text, parse_constant=_refuse, parse_int=_whole_number, parse_float=_number)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too long")
    return int(digits)


def _number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:50])
