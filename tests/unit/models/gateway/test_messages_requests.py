"""Requests of the Messages API in Chat Completions' form."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.models.base import RawToolCall, Reply, Usage
from rollout_tasks.models.gateway.client_api import PICTURE_FOLLOWS
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.messages_api import MESSAGES
from rollout_tasks.models.gateway.refused import Refused

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "b25l"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,b25l"}}
USER = {"role": "user", "content": "x"}
TEXT = {"type": "text", "text": "x"}
CACHE = {"cache_control": {"type": "ephemeral"}}


def call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def use(call_id: str = "c1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": given}


def result(content: Any, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def tool(content: str, call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


MESSAGES_CASES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "text": ([USER], [USER]),
    "one block": ([user({**TEXT, **CACHE})], [USER]),
    "two blocks": ([user(TEXT, TEXT)], [user(TEXT, TEXT)]),
    "a picture": ([user(IMAGE, TEXT)], [user(PICTURE, TEXT)]),
    "a picture's address": (
        [user({"type": "image", "source": {"type": "url", "url": "http://a/b.png"}})],
        [user({"type": "image_url", "image_url": {"url": "http://a/b.png"}})],
    ),
    "an answer": ([USER, {"role": "assistant", "content": "a"}], [USER, {"role": "assistant", "content": "a"}]),
    "thinking, text and parallel calls": (
        [
            model(
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "a"},
                use(a=1),
                use("c2"),
            ),
            user(result("1"), result("2", "c2")),
        ],
        [
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [call("f", '{"a": 1}'), call("f", "{}", "c2")],
                "reasoning_content": "hm",
            },
            tool("1"),
            tool("2", "c2"),
        ],
    ),
    "a call without words": ([model(use())], [{"role": "assistant", "content": None, "tool_calls": [call("f", "{}")]}]),
    "a result that is an error": ([user(result("no", is_error=True))], [tool("Error: no")]),
    "a result that is no error": ([user(result("yes", is_error=False))], [tool("yes")]),
    "an empty result": ([user({"type": "tool_result", "tool_use_id": "c1"})], [tool("")]),
    "a result of several texts": ([user(result([TEXT, {"type": "text", "text": "y"}]))], [tool("x\ny")]),
    "pictures of results come after all of them": (
        [user(result([TEXT, IMAGE]), result([IMAGE], "c2", **CACHE), {"type": "text", "text": "next"})],
        [
            tool(f"x\n{PICTURE_FOLLOWS}"),
            tool(PICTURE_FOLLOWS, "c2"),
            user(PICTURE, PICTURE, {"type": "text", "text": "next"}),
        ],
    ),
    "a failed result with a picture": (
        [user(result([TEXT, IMAGE], is_error=True))],
        [tool(f"Error: x\n{PICTURE_FOLLOWS}"), user(PICTURE)],
    ),
}


def read(body: dict[str, Any], memory: SessionMemory | None = None) -> dict[str, Any]:
    return MESSAGES.read({"model": "m", "max_tokens": 5, **body}, memory or SessionMemory(), 1 << 20).request


@pytest.mark.parametrize(("given", "expected"), MESSAGES_CASES.values(), ids=MESSAGES_CASES.keys())
def test_blocks_become_messages(given: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert read({"messages": given}) == {"model": "m", "max_completion_tokens": 5, "messages": expected}


SCHEMA = {"type": "object", "properties": {}}
F = {"name": "f", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a system prompt": ({"system": "s"}, {"messages": [{"role": "system", "content": "s"}, USER]}),
    "a system prompt in one block": (
        {"system": [{"type": "text", "text": "s", **CACHE}]},
        {"messages": [{"role": "system", "content": "s"}, USER]},
    ),
    "a system prompt that is a block": (
        {"system": {"type": "text", "text": "s"}},
        {"messages": [{"role": "system", "content": "s"}, USER]},
    ),
    "a system prompt in two blocks": (
        {"system": [TEXT, TEXT]},
        {"messages": [{"role": "system", "content": [TEXT, TEXT]}, USER]},
    ),
    "sampling": (
        {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["a"]},
        {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop": ["a"]},
    ),
    "a user": ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    "no thinking": ({"thinking": {"type": "disabled"}}, {}),
    "a tool": (
        {"tools": [{**F, "description": "d", **CACHE}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]},
    ),
    "any tool": (
        {"tools": [F], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False},
    ),
    "this tool": (
        {"tools": [{**F, "type": "custom"}], "tool_choice": {"type": "tool", "name": "f"}},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    "no tool": ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
}


@pytest.mark.parametrize(("body", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_become_fields(body: dict[str, Any], expected: dict[str, Any]) -> None:
    asked = {"model": "m", "max_completion_tokens": 5, "messages": [USER], **expected}

    assert read({"messages": [USER], **body}) == asked


@pytest.mark.parametrize(
    ("kind", "more", "has", "lacks"),
    [
        ("computer_20241022", {}, "cursor_position", "scroll"),
        ("computer_20250124", {}, "scroll", "zoom"),
        ("computer_20251124", {"enable_zoom": True}, "zoom", "tap"),
    ],
)
def test_a_computer_becomes_a_function(kind: str, more: dict[str, Any], has: str, lacks: str) -> None:
    given = {"type": kind, "name": "computer", "display_width_px": 1280, "display_height_px": 720, **more}

    ((function),) = [one["function"] for one in read({"messages": [USER], "tools": [given]})["tools"]]

    actions = function["parameters"]["properties"]["action"]["enum"]
    assert has in actions
    assert lacks not in actions
    assert "Its screen has 1280 x 720 pixels." in function["description"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no limit": ({"max_tokens": None}, "max_tokens must be a whole number of at least 1"),
    "a limit of true": ({"max_tokens": True}, "max_tokens must be a whole number of at least 1"),
    "an unknown field": ({"mcp_servers": []}, "the request has the field 'mcp_servers', which is not supported"),
    "thinking": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        "thinking of type 'enabled' cannot be expressed in Chat Completions",
    ),
    "a shell": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tool 0 of type 'bash_20250124' cannot be"),
    "a tool without a schema": ({"tools": [{"name": "f"}]}, "tool 0: input_schema must be an object"),
    "a document": ({"messages": [user({"type": "document"})]}, "message 0: a block of type 'document' cannot be"),
    "hidden thinking": (
        {"messages": [model({"type": "redacted_thinking", "data": "x"})]},
        "message 0: a block of type 'redacted_thinking' of the assistant cannot be",
    ),
    "text after a call": ({"messages": [model(use(), TEXT)]}, "message 0: text after a tool_use cannot be expressed"),
    "text before a result": (
        {"messages": [user(TEXT, result("1"))]},
        "message 0: results of tools must come before everything else",
    ),
    "a file": (
        {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
        "message 0: a picture of source type 'file' cannot be expressed",
    ),
    "a system message": (
        {"messages": [{"role": "system", "content": "x"}]},
        "message 0: role must be user or assistant",
    ),
    "no message": ({"messages": []}, "messages must have at least one message"),
    "a choice of no kind": ({"tool_choice": {"type": []}}, "tool_choice: type must be text"),
    "a choice by a list": ({"tool_choice": {"type": "tool", "name": []}}, "this tool_choice cannot be expressed"),
    "an unknown tool": ({"tool_choice": {"type": "tool", "name": "g"}}, "this tool_choice cannot be expressed"),
    "a call's unknown field": (
        {"messages": [model({**use(), "caller": {"type": "x"}})]},
        "message 0: tool_use has the field 'caller', which is not supported",
    ),
    "a picture's unknown field": (
        {"messages": [user({**IMAGE, "title": "x"})]},
        "message 0: image has the field 'title', which is not supported",
    ),
    "a nested result": (
        {"messages": [user(result([use()]))]},
        "message 0: a tool_result with a block of type 'tool_use'",
    ),
}


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_expressed_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as caught:
        read({"messages": [USER], **body})

    assert str(caught.value).startswith(said)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("written", "sent", "expected"),
    [
        ('{"a":1}', {"a": 1}, '{"a":1}'),
        ('{"a":1}', {"a": 2}, '{"a": 2}'),
        ("", {}, ""),
        ('{"a":', {"invalid_arguments": '{"a":'}, '{"a":'),
    ],
)
def test_arguments_are_sent_back_as_the_model_wrote_them_unless_they_were_changed(
    written: str, sent: dict[str, Any], expected: str
) -> None:
    memory = SessionMemory()
    memory.keep(Reply({}, "", (RawToolCall("c1", "f", written),), "", Usage()))

    (message,) = read({"messages": [model(use(**sent))]}, memory)["messages"]

    assert message["tool_calls"][0]["function"]["arguments"] == expected
