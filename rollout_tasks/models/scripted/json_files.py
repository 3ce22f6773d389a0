"""Reads users' JSON files; every mistake becomes one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from rollout_tasks.errors import UserError
from rollout_tasks.validation_messages import clause, location_of

T = TypeVar("T")


def read_json(path: Path, what: str) -> Any:
    """Reads a JSON file.

    Args:
        path: The file.
        what: What it is for, as in ``"script file"``.

    Raises:
        UserError: It cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{what} {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} {path}: is not JSON: {error}") from error


def validate(adapter: TypeAdapter[T], values: Any, where: str) -> T:
    """Checks values against a type.

    Raises:
        UserError: Names `where`, the first wrong place in it, and what is wrong.
    """
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, location_of(first, values)))
        raise UserError(": ".join(filter(None, (where, place, clause(first))))) from error
