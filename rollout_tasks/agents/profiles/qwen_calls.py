"""The calls of a Qwen reply as text: ``<tool_call>`` around JSON, or around ``<function=...><parameter=...>``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollout_tasks.agents.profiles.reply import UnusableReplyError, fields, shown
from rollout_tasks.agents.tool_calls import parsed_json

TOOL = "computer_use"
_TAG = re.compile(r"<(/?)tool_call>|^[ \t]{0,20}[⚗📐].{0,5}$", re.MULTILINE)
"""The two signs are what some models learned in place of the tags; they open a call and close none."""
_FUNCTION, _PARAMETER = "<function=", "<parameter="


@dataclass(frozen=True, slots=True)
class Written:
    """A reply taken apart."""

    before: str
    """The text before the first call or tag."""
    calls: tuple[Mapping[str, Any], ...]
    """The arguments of each call. Values of ``<parameter=...>`` are text."""


def take_apart(text: str) -> Written:
    """Finds the calls. JSON outside of tags is a call only in a reply that has no tag: in others it is what the model thinks about.

    Raises:
        UnusableReplyError: A call that is not a JSON object, or is for another tool.
    """
    calls: list[Mapping[str, Any]] = []
    first = len(text)
    tagged = any(not tag[1] for tag in _TAG.finditer(text))
    for start, inside, body in _sections(text):
        if tagged and not inside:
            continue
        first = min(first, start) if inside else first
        for offset, call in _in_tags(body) if inside else _in_prose(body):
            first = min(first, start + offset)
            calls.append(call)
    return Written(text[:first], tuple(calls))


def _sections(text: str) -> Iterator[tuple[int, bool, str]]:
    """Yields the text between tags: where the text or its tag starts, whether a tag opened it, and the text."""
    start = position = 0
    inside = False
    for tag in _TAG.finditer(text):
        yield start, inside, text[position : tag.start()]
        inside, position = not tag[1], tag.end()
        start = tag.start() if inside else position
    yield start, inside, text[position:]


def _in_tags(body: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if _FUNCTION in body:
        yield from _functions(body, 0)
    elif body.strip():
        yield 0, _arguments(_json(body))


def _in_prose(body: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the calls without tags, and where they are: JSON on a line of its own, or ``<function=...>``."""
    if _FUNCTION in body:
        yield from _functions(body, body.index(_FUNCTION))
        return
    offset = 0
    for whole in body.splitlines(keepends=True):
        line = whole.strip()
        if line.startswith("{") and line.endswith("}") and '"name"' in line and '"arguments"' in line:
            yield offset, _arguments(_json(line))
        offset += len(whole)


def _json(text: str) -> Any:
    try:
        return parsed_json(text)
    except (ValueError, RecursionError) as error:
        raise UnusableReplyError("The text of a tool call is not JSON, or is cut off.") from error


def _arguments(call: Any) -> Mapping[str, Any]:
    call = fields(call, "tool call")
    _check_name(call.get("name"))
    arguments = call.get("arguments")
    return fields(_json(arguments) if isinstance(arguments, str) else arguments, "arguments of the tool call")


def _check_name(name: object) -> None:
    if name != TOOL:
        raise UnusableReplyError(f"The tool {shown(name)} is unknown; the only one is {TOOL!r}.")


def _functions(body: str, offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for function in body.split(_FUNCTION)[1:]:
        name, closed, rest = function.partition(">")
        if not closed:
            raise UnusableReplyError("A tool call is cut off in the name of its function.")
        _check_name(name.strip().strip("'\""))
        yield offset, dict(map(_parameter, rest.partition("</function>")[0].split(_PARAMETER)[1:]))


def _parameter(text: str) -> tuple[str, str]:
    name, _, rest = text.partition(">")
    value, closed, _ = rest.rpartition("</parameter>")
    if not closed:
        raise UnusableReplyError(f"The parameter {shown(name)} of a tool call does not end.")
    return name.strip(), value.removeprefix("\n").removesuffix("\n")
