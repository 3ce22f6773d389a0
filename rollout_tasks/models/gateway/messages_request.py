"""Requests of Anthropic's Messages API as Chat Completions requests. What cannot be expressed is refused, field by field."""

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
from rollout_tasks.models.gateway.computer_tools import ANTHROPIC_TYPES, NAME, anthropic_computer
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.refused import Refused, inexpressible

_AS_THEY_ARE = ("model", "temperature", "top_p", "top_k")
_OTHERS = (
    "max_tokens", "messages", "metadata", "service_tier", "stop_sequences", "stream", "system", "thinking", "tool_choice",
    "tools",
)  # fmt: skip
_BLOCK_FIELDS = {"thinking": ("thinking", "signature"), "tool_use": ("id", "name", "input")}
_FAILED = "Error: "
"""Begins the text of a tool's result that the client marks as an error: Chat Completions has no mark."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
INVALID = "invalid_arguments"
"""The input of a call whose arguments are no JSON object, as the model wrote them."""


def read_request(body: dict[str, Any], memory: SessionMemory) -> ClientRequest:
    """Translates a request. ``cache_control`` changes no reply, and is accepted.

    Raises:
        Refused: It does not follow the API, or cannot be expressed.
    """
    known_fields(body, (*_AS_THEY_ARE, *_OTHERS))
    thinking = mapping(body.get("thinking") or {"type": "disabled"}, "thinking")
    if thinking.get("type") != "disabled":
        raise inexpressible(f"thinking of type {str(thinking.get('type'))[:100]!r}")
    if body.get("service_tier") not in (None, "auto", "standard_only"):
        raise inexpressible("this service_tier")
    request = {name: body[name] for name in _AS_THEY_ARE if body.get(name) is not None}
    if type(body.get("max_tokens")) is not int or body["max_tokens"] < 1:
        raise Refused(400, "max_tokens must be a whole number of at least 1")
    request["max_completion_tokens"] = body["max_tokens"]
    stops = body.get("stop_sequences") or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise Refused(400, "stop_sequences must be a list of texts")
    if stops:
        request["stop"] = stops
    metadata = mapping(body.get("metadata") or {}, "metadata")
    known_fields(metadata, ("user_id",), "metadata")
    if metadata.get("user_id") is not None:
        request["user"] = metadata["user_id"]
    messages = _system(body.get("system"))
    given = objects(body.get("messages"), "messages")
    if not given:
        raise Refused(400, "messages must have at least one message")
    for place, message in enumerate(given):
        messages += _messages(message, f"message {place}", memory)
    request["messages"] = messages
    computers = _add_tools(body, request)
    return ClientRequest(request, flag(body, "stream"), body, computers)


def _system(system: Any) -> list[Message]:
    if system is None:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    # Agents' libraries also send one block alone.
    blocks = objects([system] if isinstance(system, dict) else system, "system")
    parts = [text_part(_text_of(block, f"system block {place}")) for place, block in enumerate(blocks)]
    return [{"role": "system", "content": content_of(parts)}] if parts else []


def _messages(message: Mapping[str, Any], where: str, memory: SessionMemory) -> list[Message]:
    known_fields(message, ("role", "content"), where)
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise Refused(400, f"{where}: role must be user or assistant")
    if isinstance(content, str):
        return [assistant(content, [], {}) if role == "assistant" else {"role": "user", "content": content}]
    blocks = objects(content, f"{where}: content")
    return [_assistant(blocks, where, memory)] if role == "assistant" else _user(blocks, where)


def _assistant(blocks: list[dict[str, Any]], where: str, memory: SessionMemory) -> Message:
    said, thinking = "", ""
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind in ("thinking", "tool_use"):
            known_fields(block, ("type", "cache_control", *_BLOCK_FIELDS[kind]), f"{where}: {kind}")
        if kind == "text":
            if calls:
                raise inexpressible(f"{where}: text after a tool_use")
            said += _text_of(block, where)
        elif kind == "thinking":
            thinking += text(block.get("thinking"), f"{where}: thinking")
        elif kind == "tool_use":
            call_id, name = text(block.get("id"), f"{where}: id"), text(block.get("name"), f"{where}: name")
            calls.append(tool_call(call_id, name, _arguments(call_id, block.get("input"), where, memory)))
        else:
            raise inexpressible(f"{where}: a block of type {str(kind)[:100]!r} of the assistant")
    return assistant(said, calls, {memory.thinking_field: thinking} if thinking else {})


def _arguments(call_id: str, value: Any, where: str, memory: SessionMemory) -> str:
    arguments = mapping(value, f"{where}: input")
    written = memory.written_arguments(call_id)
    if written is not None and arguments == {INVALID: written}:
        return written
    return memory.arguments(call_id, arguments)


def _user(blocks: list[dict[str, Any]], where: str) -> list[Message]:
    results: list[Message] = []
    pictures: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_result":
            if parts:
                raise Refused(400, f"{where}: results of tools must come before everything else")
            result, shown = _result(block, where)
            results.append(result)
            pictures += shown
        elif kind == "text":
            parts.append(text_part(_text_of(block, where)))
        elif kind == "image":
            parts.append(_picture(block, where))
        else:
            raise inexpressible(f"{where}: a block of type {str(kind)[:100]!r}")
    parts = [*pictures, *parts]
    return [*results, {"role": "user", "content": content_of(parts)}] if parts or not results else results


def _result(block: Mapping[str, Any], where: str) -> tuple[Message, list[dict[str, Any]]]:
    known_fields(block, ("type", "tool_use_id", "content", "is_error", "cache_control"), f"{where}: tool_result")
    call_id, content = text(block.get("tool_use_id"), f"{where}: tool_use_id"), block.get("content")
    inner = (
        [{"type": "text", "text": content}] if isinstance(content, str) else objects(content or [], f"{where}: content")
    )
    words, pictures = [], []
    for one in inner:
        if one.get("type") == "text":
            words.append(_text_of(one, where))
        elif one.get("type") == "image":
            pictures.append(_picture(one, where))
        else:
            raise inexpressible(f"{where}: a tool_result with a block of type {str(one.get('type'))[:100]!r}")
    said = ("" if not flag(block, "is_error") else _FAILED) + "\n".join(words)
    return tool_result(call_id, said, pictures), pictures


def _text_of(block: Mapping[str, Any], where: str) -> str:
    if block.get("type") != "text":
        raise inexpressible(f"{where}: a block of type {str(block.get('type'))[:100]!r}")
    known_fields(block, ("type", "text", "cache_control", "citations"), f"{where}: text")
    if block.get("citations"):
        raise inexpressible(f"{where}: citations")
    return text(block.get("text"), f"{where}: text")


def _picture(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    known_fields(block, ("type", "source", "cache_control"), f"{where}: image")
    source = mapping(block.get("source"), f"{where}: source")
    if source.get("type") == "base64":
        kind, data = text(source.get("media_type"), f"{where}: media_type"), text(source.get("data"), f"{where}: data")
        return picture(f"data:{kind};base64,{data}")
    if source.get("type") == "url":
        return picture(text(source.get("url"), f"{where}: url"))
    raise inexpressible(f"{where}: a picture of source type {str(source.get('type'))[:100]!r}")


def _add_tools(body: Mapping[str, Any], request: dict[str, Any]) -> frozenset[str]:
    tools, computers, names = [], set(), set()
    for place, tool in enumerate(objects(body.get("tools") or [], "tools")):
        kind, where = tool.get("type") or "custom", f"tool {place}"
        name = text(tool.get("name"), f"{where}: name")
        if kind == "custom":
            known_fields(tool, ("type", "name", "description", "input_schema", "cache_control", "strict"), where)
            schema = mapping(tool.get("input_schema"), f"{where}: input_schema")
            tools.append(function_tool(name, tool.get("description"), schema, tool.get("strict")))
        elif kind in ANTHROPIC_TYPES and name == NAME:
            computers.add(kind)
            tools.append({"type": "function", "function": {"name": NAME, **anthropic_computer(tool)}})
        else:
            raise inexpressible(f"{where} of type {str(kind)[:100]!r}")
        if name in names:
            raise Refused(400, f"{where}: there are two tools named {name[:100]!r}")
        names.add(name)
    if tools:
        request["tools"] = tools
    if body.get("tool_choice") is not None:
        _add_choice(mapping(body["tool_choice"], "tool_choice"), names, request)
    return frozenset(computers)


def _add_choice(choice: Mapping[str, Any], names: set[str], request: dict[str, Any]) -> None:
    known_fields(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice")
    kind, name = text(choice.get("type"), "tool_choice: type"), choice.get("name")
    if kind == "tool" and isinstance(name, str) and name in names:
        request["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind in _CHOICES:
        request["tool_choice"] = _CHOICES[kind]
    else:
        raise inexpressible("this tool_choice")
    if flag(choice, "disable_parallel_tool_use"):
        request["parallel_tool_calls"] = False
