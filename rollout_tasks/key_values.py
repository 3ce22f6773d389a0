"""Options given as ``key=value``, such as a provider's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.validation_messages import shown


def key_values(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Parses ``key=value`` pairs of a repeatable option; a value that is JSON is decoded, any other stays text.

    Raises:
        UserError: A pair has no key or no ``=``.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"{name}: must look like key=value, got {shown(pair)}")
        try:
            options[key] = json.loads(value)
        except (ValueError, RecursionError):  # also a number that is too long, and lists that are too deep
            options[key] = value
    return options
