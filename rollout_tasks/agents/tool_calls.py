"""Validates the model's tool calls: returns an executable call, or tells the model what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from rollout_tasks.environments.base import Tool, ToolCall
from rollout_tasks.models.base import RawToolCall
from rollout_tasks.strict_json import parse_json
from rollout_tasks.unicode_text import storable_json

MAX_REASON = 500
"""Characters of a validation error; the wrong value itself may have any size."""
DEEPEST_ARGUMENTS = 32
"""Nesting depth of lists and objects; validation is recursive."""


class UnusableCallError(ValueError):
    """A call that cannot be executed; the message is for the model."""


class ToolCallReader:
    """Validates calls of an episode's tools; schemas are compiled once per process."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._validators = {tool.name: _validator(tool.parameters) for tool in tools}

    def read(self, raw: RawToolCall, *, cut_off: bool, filtered: bool = False) -> ToolCall:
        """Parses and validates one call. Empty arguments are ``{}``, unless they may be missing.

        Args:
            raw: The call as the model wrote it.
            cut_off: Whether the reply ended in this call at its token limit, which explains broken arguments.
            filtered: Whether a content filter stopped the reply or took parts of it away.

        Raises:
            UnusableCallError: Unknown tool, or arguments that are not a JSON object or do not match the tool's schema.
        """
        validator = self._validators.get(raw.name)
        if validator is None:
            raise UnusableCallError(f"Tool {raw.name[:100]!r} not found. Known: {', '.join(self._validators)}.")
        complete = not (cut_off or filtered)
        try:
            arguments = parsed_json(raw.arguments or ("{}" if complete else ""))
        except (ValueError, RecursionError) as error:
            reason = f"arguments are not JSON: {error}"
            if cut_off:
                reason = "arguments are cut off: the reply reached its token limit"
            elif filtered:
                reason = "arguments are not whole: a content filter stopped the reply"
            raise UnusableCallError(f"Validation failed for {raw.name}: {reason}") from error
        problem = best_match(validator.iter_errors(arguments))
        if problem is not None:
            where = f" (at {problem.json_path})" if problem.path else ""
            raise UnusableCallError(f"Validation failed for {raw.name}: {problem.message[:MAX_REASON]}{where}")
        return ToolCall(raw.id, raw.name, arguments)


def parsed_json(text: str) -> Any:
    """Returns the value of a model's JSON, bounded and storable.

    Raises:
        ValueError: Not JSON, a number that is not finite or too long, or lists and objects nested too deeply.
        RecursionError: Nested more deeply than Python can read.
    """
    return storable_json(parse_json(text), DEEPEST_ARGUMENTS)


_compiled: dict[str, Draft202012Validator] = {}


def _validator(parameters: Mapping[str, Any]) -> Draft202012Validator:
    key = json.dumps(parameters, sort_keys=True)
    validator = _compiled.get(key)
    if validator is None:
        Draft202012Validator.check_schema(parameters)
        validator = _compiled[key] = Draft202012Validator({"type": "object", **parameters})
    return validator
