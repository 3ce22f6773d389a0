"""Requests of OpenAI's Responses API as Chat Completions requests. What cannot be expressed is refused, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout_tasks.models.base import Message
from rollout_tasks.models.gateway.client_api import (
    ClientRequest,
    assistant,
    content_of,
    flag,
    function_tool,
    known_fields,
    mapping,
    objects,
    picture,
    text,
    text_part,
    tool_call,
    tool_result,
)
from rollout_tasks.models.gateway.computer_tools import NAME, OPENAI_TYPES, openai_computer
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.refused import Refused, inexpressible

_AS_THEY_ARE = (
    "model", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "temperature", "top_p", "user",
)  # fmt: skip
_OTHERS = (
    "background", "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "previous_response_id", "prompt", "reasoning", "store", "stream", "stream_options", "text", "tool_choice", "tools",
    "top_logprobs", "truncation",
)  # fmt: skip
_ITEM_FIELDS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content", "phase"),
    "reasoning": ("summary", "content", "encrypted_content"),
    "function_call": ("call_id", "name", "arguments"),
    "computer_call": ("call_id", "action", "actions", "pending_safety_checks"),
    "function_call_output": ("call_id", "output"),
    "computer_call_output": ("call_id", "output", "acknowledged_safety_checks", "current_url"),
}
"""What items may have besides type, id and status. `phase` says which kind of message it was; the model gets all alike."""
_PART_FIELDS: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text", "annotations", "logprobs"),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id", "detail"),
}
_LOGPROBS = "message.output_text.logprobs"


def read_request(body: dict[str, Any], memory: SessionMemory, most: int) -> ClientRequest:
    """Translates a request.

    ``truncation: auto`` is accepted, and nothing is left out: a conversation that is too long is refused by the endpoint.
    ``metadata`` and ``store`` have no meaning for the model, and are repeated in the response.

    Raises:
        Refused: It does not follow the API, or cannot be expressed.
    """
    known_fields(body, (*_AS_THEY_ARE, *_OTHERS))
    for name in ("conversation", "prompt", "max_tool_calls"):
        if body.get(name) is not None:
            raise inexpressible(name)
    if flag(body, "background"):
        raise inexpressible("background")
    if body.get("truncation") not in (None, "auto", "disabled"):
        raise Refused(400, "truncation must be auto or disabled")
    request = {name: body[name] for name in _AS_THEY_ARE if body.get(name) is not None}
    before: list[Message] = []
    size = 0
    if (previous := body.get("previous_response_id")) is not None:
        conversation = memory.conversations.get(text(previous, "previous_response_id"))
        if conversation is None:
            raise Refused(404, f"this session has no response {previous[:100]!r}", "not_found")
        before, size = list(conversation.messages), conversation.size
    added = _messages(body.get("input"), memory)
    size += _size_of(added)
    if size > most:
        raise Refused(413, f"the conversation has more than {most:,} bytes", "request_too_large")
    messages = [*before, *added]
    if not messages:
        raise Refused(400, "input must have at least one item")
    # Instructions are for one request: those of earlier ones are no part of the conversation.
    said = body.get("instructions")
    system: list[Message] = [] if said is None else [{"role": "system", "content": text(said, "instructions")}]
    request["messages"] = [*system, *messages]
    computers = _add_tools(body, request)
    _add_options(body, request)
    return ClientRequest(request, flag(body, "stream"), body, computers, size, {"messages": messages})


def _messages(given: Any, memory: SessionMemory) -> list[Message]:
    if given is None:
        return []
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    items = _Items(memory)
    for place, item in enumerate(objects(given, "input")):
        items.add(item, f"input item {place}")
    return items.end()


class _Items:
    """Collects input items into messages: an assistant's text, thinking and calls are one message."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory
        self._messages: list[Message] = []
        self._said: str | None = None
        self._thinking = ""
        self._calls: list[dict[str, Any]] = []
        self._pictures: list[dict[str, Any]] = []

    def add(self, item: Mapping[str, Any], where: str) -> None:
        kind = item.get("type") or "message"
        if not isinstance(kind, str) or kind not in _ITEM_FIELDS:
            raise inexpressible(f"{where}: an item of type {str(kind)[:100]!r}")
        known_fields(item, ("type", "id", "status", *_ITEM_FIELDS[kind]), where)
        if kind == "message":
            self._add_message(item, where)
        elif kind == "reasoning":
            self._add_reasoning(item, where)
        elif kind == "function_call":
            call_id, name = text(item.get("call_id"), f"{where}: call_id"), text(item.get("name"), f"{where}: name")
            self._add_call(tool_call(call_id, name, text(item.get("arguments"), f"{where}: arguments")))
        elif kind == "computer_call":
            self._add_computer_call(item, where)
        elif kind == "function_call_output":
            self._add_output(item, *_output(item.get("output"), where), where)
        else:
            self._add_output(item, *_screenshot(item, where), where)

    def end(self) -> list[Message]:
        self._end_assistant()
        self._end_results()
        return self._messages

    def _add_message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        if role == "assistant":
            if self._said is not None or self._calls:
                self._end_assistant()
            self._end_results()
            self._said = _said(item.get("content"), where)
            return
        if role not in ("user", "system", "developer"):
            raise Refused(400, f"{where}: role must be user, assistant, system or developer")
        self.end()
        content = item.get("content")
        parts = [text_part(content)] if isinstance(content, str) else _parts(content, where)
        # Templates of served models know no developer; it means the same as system.
        self._messages.append({"role": "user" if role == "user" else "system", "content": content_of(parts)})

    def _add_reasoning(self, item: Mapping[str, Any], where: str) -> None:
        if item.get("encrypted_content") is not None:
            raise inexpressible(f"{where}: encrypted reasoning")
        if self._said is not None or self._calls:
            self._end_assistant()
        self._end_results()
        parts = objects(item.get("content") or item.get("summary") or [], f"{where}: content")
        self._thinking += "".join(text(part.get("text"), f"{where}: text") for part in parts)

    def _add_call(self, call: dict[str, Any]) -> None:
        self._end_results()
        self._calls.append(call)

    def _add_computer_call(self, item: Mapping[str, Any], where: str) -> None:
        call_id = text(item.get("call_id"), f"{where}: call_id")
        if item.get("pending_safety_checks"):
            raise inexpressible(f"{where}: pending_safety_checks")
        if item.get("actions") is not None:
            actions = objects(item["actions"], f"{where}: actions")
            value: dict[str, Any] = {"actions": [_without_nulls(action) for action in actions]}
        else:
            value = {"action": _without_nulls(mapping(item.get("action"), f"{where}: action"))}
        self._add_call(tool_call(call_id, NAME, self._memory.arguments(call_id, value)))

    def _add_output(self, item: Mapping[str, Any], words: str, pictures: list[dict[str, Any]], where: str) -> None:
        self._end_assistant()
        self._messages.append(tool_result(text(item.get("call_id"), f"{where}: call_id"), words, pictures))
        self._pictures += pictures

    def _end_assistant(self) -> None:
        if self._said is not None or self._calls or self._thinking:
            thinking = {self._memory.thinking_field: self._thinking} if self._thinking else {}
            self._messages.append(assistant(self._said or "", self._calls, thinking))
        self._said, self._thinking, self._calls = None, "", []

    def _end_results(self) -> None:
        if self._pictures:
            self._messages.append({"role": "user", "content": self._pictures})
        self._pictures = []


def _said(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    said = ""
    for part in objects(content, f"{where}: content"):
        if _part_type(part, where) == "input_image":
            raise inexpressible(f"{where}: a picture in an assistant's message")
        said += text(part.get("refusal" if part["type"] == "refusal" else "text"), f"{where}: text")
    return said


def _parts(content: Any, where: str) -> list[dict[str, Any]]:
    parts = []
    for part in objects(content, f"{where}: content"):
        if _part_type(part, where) == "input_image":
            parts.append(_picture(part, where))
        else:
            parts.append(text_part(text(part.get("text"), f"{where}: text")))
    return parts


def _part_type(part: Mapping[str, Any], where: str) -> str:
    """Returns a part's type, once its fields are checked."""
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PART_FIELDS:
        raise inexpressible(f"{where}: a part of type {str(kind)[:100]!r}")
    known_fields(part, ("type", *_PART_FIELDS[kind]), f"{where}: {kind}")
    return kind


def _picture(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    if part.get("file_id") is not None:
        raise inexpressible(f"{where}: a picture by file_id")
    return picture(text(part.get("image_url"), f"{where}: image_url"), part.get("detail"))


def _output(output: Any, where: str) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(output, str):
        return output, []
    parts = _parts(output, where)
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return words, [part for part in parts if part["type"] != "text"]


def _screenshot(item: Mapping[str, Any], where: str) -> tuple[str, list[dict[str, Any]]]:
    if item.get("acknowledged_safety_checks"):
        raise inexpressible(f"{where}: acknowledged_safety_checks")
    output = mapping(item.get("output"), f"{where}: output")
    url = output.get("current_url") or item.get("current_url")
    words = f"The page's address is {text(url, f'{where}: current_url')}." if url is not None else ""
    return words, [_picture(output, f"{where}: output")]


def _add_tools(body: Mapping[str, Any], request: dict[str, Any]) -> frozenset[str]:
    tools, computers, names = [], set(), set()
    for place, tool in enumerate(objects(body.get("tools") or [], "tools")):
        kind, where = tool.get("type"), f"tool {place}"
        if kind == "function":
            known_fields(tool, ("type", "name", "description", "parameters", "strict"), where)
            name = text(tool.get("name"), f"{where}: name")
            tools.append(function_tool(name, tool.get("description"), tool.get("parameters"), tool.get("strict")))
        elif kind in OPENAI_TYPES:
            name = NAME
            computers.add(kind)
            tools.append({"type": "function", "function": {"name": NAME, **openai_computer(tool)}})
        else:
            raise inexpressible(f"{where} of type {str(kind)[:100]!r}")
        if name in names:
            raise Refused(400, f"{where}: there are two tools named {name[:100]!r}")
        names.add(name)
    if tools:
        request["tools"] = tools
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        named = NAME if choice.get("type") in OPENAI_TYPES else choice.get("name")
        if choice.get("type") not in ("function", *OPENAI_TYPES) or not isinstance(named, str) or named not in names:
            raise inexpressible("this tool_choice")
        choice = {"type": "function", "function": {"name": named}}
    if choice is not None:
        request["tool_choice"] = choice
    return frozenset(computers)


def _add_options(body: Mapping[str, Any], request: dict[str, Any]) -> None:
    if body.get("max_output_tokens") is not None:
        request["max_completion_tokens"] = body["max_output_tokens"]
    options = mapping(body.get("text") or {}, "text")
    known_fields(options, ("format", "verbosity"), "text")
    if options.get("verbosity") is not None:
        request["verbosity"] = options["verbosity"]
    wanted = mapping(options.get("format") or {"type": "text"}, "text.format")
    if wanted.get("type") == "json_schema":
        schema = {name: value for name, value in wanted.items() if name != "type" and value is not None}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif wanted.get("type") == "json_object":
        request["response_format"] = {"type": "json_object"}
    elif wanted.get("type") != "text":
        raise inexpressible(f"text.format of type {str(wanted.get('type'))[:100]!r}")
    reasoning = mapping(body.get("reasoning") or {}, "reasoning")
    known_fields(reasoning, ("effort", "summary", "generate_summary"), "reasoning")
    if reasoning.get("effort") is not None:
        request["reasoning_effort"] = reasoning["effort"]
    included = body.get("include") or []
    if not isinstance(included, list) or any(one != _LOGPROBS for one in included):
        raise inexpressible(f"include with anything but {_LOGPROBS}")
    if included or body.get("top_logprobs") is not None:
        request["logprobs"] = True
    if body.get("top_logprobs") is not None:
        request["top_logprobs"] = body["top_logprobs"]


def _without_nulls(action: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an action without the empty fields that client libraries add."""
    return {name: value for name, value in action.items() if value is not None}


def _size_of(messages: list[Message]) -> int:
    """Returns about how many bytes messages have: those of the texts in them."""
    size, left = 0, list[Any](messages)
    while left:
        one = left.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
    return size
