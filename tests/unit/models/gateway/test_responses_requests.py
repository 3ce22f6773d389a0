"""Requests of the Responses API in Chat Completions' form."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.models.base import RawToolCall, Reply, Usage
from rollout_tasks.models.gateway.client_api import PICTURE_FOLLOWS
from rollout_tasks.models.gateway.memory import Conversation, SessionMemory
from rollout_tasks.models.gateway.refused import Refused
from rollout_tasks.models.gateway.responses_api import RESPONSES

PNG = "data:image/png;base64,b25l"
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
USER = {"role": "user", "content": "x"}


def call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def output(value: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


MESSAGES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "text": ("x", [USER]),
    "a message": ([{"role": "user", "content": "x"}], [USER]),
    "one part": ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}], [USER]),
    "a developer": ([{"role": "developer", "content": "d"}], [{"role": "system", "content": "d"}]),
    "text and picture": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": PNG, "detail": "auto"},
                ],
            }
        ],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, PICTURE]}],
    ),
    "a picture's detail": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": PNG, "detail": "original"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG, "detail": "original"}}]}],
    ),
    "an answer": (
        [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
            {"role": "user", "content": "x"},
        ],
        [{"role": "assistant", "content": "a"}, USER],
    ),
    "two answers": (
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
    ),
    "thinking, text and parallel calls are one message": (
        [
            {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"role": "assistant", "content": "a"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{"},
            output("1"),
            output("2", "c2"),
        ],
        [
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [call("f", '{"a":1}'), call("g", "{", "c2")],
                "reasoning_content": "hm",
            },
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
        ],
    ),
    "two turns": (
        [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            output("1"),
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}", "c2")]},
        ],
    ),
    "pictures of parallel results come after all of them": (
        [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
            output([{"type": "input_text", "text": "1"}, {"type": "input_image", "image_url": PNG}]),
            output([{"type": "input_image", "image_url": PNG}], "c2"),
            {"role": "user", "content": "x"},
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}"), call("f", "{}", "c2")]},
            {"role": "tool", "tool_call_id": "c1", "content": f"1\n{PICTURE_FOLLOWS}"},
            {"role": "tool", "tool_call_id": "c2", "content": PICTURE_FOLLOWS},
            {"role": "user", "content": [PICTURE, PICTURE]},
            USER,
        ],
    ),
    "a picture of a result, and an answer to it": (
        [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            output([{"type": "input_image", "image_url": PNG}]),
            {"role": "assistant", "content": "a"},
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": PICTURE_FOLLOWS},
            {"role": "user", "content": [PICTURE]},
            {"role": "assistant", "content": "a"},
        ],
    ),
    "a picture of a result, and thinking and a call after it": (
        [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            output([{"type": "input_image", "image_url": PNG}]),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": PICTURE_FOLLOWS},
            {"role": "user", "content": [PICTURE]},
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}", "c2")], "reasoning_content": "hm"},
        ],
    ),
    "a computer's call and its screenshot": (
        [
            {
                "type": "computer_call",
                "id": "cu",
                "call_id": "c1",
                "action": {"type": "click", "button": "left", "x": 1, "y": 2, "keys": None},
                "pending_safety_checks": [],
            },
            {
                "type": "computer_call_output",
                "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": PNG},
                "acknowledged_safety_checks": [],
            },
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("computer", '{"action": {"type": "click", "button": "left", "x": 1, "y": 2}}')],
            },
            {"role": "tool", "tool_call_id": "c1", "content": PICTURE_FOLLOWS},
            {"role": "user", "content": [PICTURE]},
        ],
    ),
    "a batch of actions, and an address": (
        [
            {"type": "computer_call", "call_id": "c1", "actions": [{"type": "wait"}, {"type": "screenshot"}]},
            {
                "type": "computer_call_output",
                "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": PNG, "current_url": "http://a"},
            },
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("computer", '{"actions": [{"type": "wait"}, {"type": "screenshot"}]}')],
            },
            {"role": "tool", "tool_call_id": "c1", "content": f"The page's address is http://a.\n{PICTURE_FOLLOWS}"},
            {"role": "user", "content": [PICTURE]},
        ],
    ),
}


def read(body: dict[str, Any], memory: SessionMemory | None = None, most: int = 1 << 20) -> dict[str, Any]:
    return RESPONSES.read({"model": "m", **body}, memory or SessionMemory(), most).request


@pytest.mark.parametrize(("given", "expected"), MESSAGES.values(), ids=MESSAGES.keys())
def test_input_items_become_messages(given: Any, expected: list[dict[str, Any]]) -> None:
    assert read({"input": given}) == {"model": "m", "messages": expected}


SCHEMA = {"type": "object", "properties": {}}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "instructions": ({"instructions": "i"}, {"messages": [{"role": "system", "content": "i"}, USER]}),
    "limits and sampling": (
        {"max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9},
        {"max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9},
    ),
    "a function": (
        {"tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                }
            ]
        },
    ),
    "a function that must be called": (
        {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
    ),
    "a choice in a word": ({"tool_choice": "required"}, {"tool_choice": "required"}),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}},
    ),
    "any JSON": ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    "plain text": ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
    "effort": ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    "log-probabilities": (
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"logprobs": True, "top_logprobs": 2},
    ),
    "what is only repeated": ({"store": True, "metadata": {"a": "b"}, "truncation": "auto", "stream": True}, {}),
    "nulls": ({"conversation": None, "max_tool_calls": None, "background": None, "some_new_field": None}, {}),
}


@pytest.mark.parametrize(("body", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_become_fields(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read({"input": "x", **body}) == {"model": "m", "messages": [USER], **expected}


@pytest.mark.parametrize(
    ("tool", "needed", "described"),
    [
        ({"type": "computer"}, "actions", "Acts on the computer"),
        (
            {"type": "computer_use_preview", "display_width": 1280, "display_height": 720, "environment": "linux"},
            "action",
            "Its screen has 1280 x 720 pixels. It runs linux.",
        ),
    ],
)
def test_a_computer_becomes_a_function(tool: dict[str, Any], needed: str, described: str) -> None:
    request = read({"input": "x", "tools": [tool], "tool_choice": {"type": tool["type"]}})

    ((function),) = [one["function"] for one in request["tools"]]
    assert function["name"] == "computer"
    assert function["parameters"]["required"] == [needed]
    assert described in function["description"]
    assert request["tool_choice"] == {"type": "function", "function": {"name": "computer"}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"some_new_field": 1}, "the request has the field 'some_new_field', which is not supported"),
    "background": ({"background": True}, "background cannot be expressed"),
    "a conversation": ({"conversation": "c"}, "conversation cannot be expressed"),
    "a tool of the server's": ({"tools": [{"type": "web_search"}]}, "tool 0 of type 'web_search' cannot be expressed"),
    "two tools of one name": (
        {"tools": [{"type": "computer"}, {"type": "function", "name": "computer"}]},
        "tool 1: there are two tools named 'computer'",
    ),
    "an unknown choice": ({"tool_choice": {"type": "function", "name": "f"}}, "this tool_choice cannot be expressed"),
    "a choice by a list": ({"tool_choice": {"type": "function", "name": []}}, "this tool_choice cannot be expressed"),
    "an unknown response": ({"previous_response_id": "resp_x"}, "this session has no response 'resp_x'"),
    "encrypted reasoning": ({"include": ["reasoning.encrypted_content"]}, "include with anything but"),
    "a reference": (
        {"input": [{"type": "item_reference", "id": "x"}]},
        "input item 0: an item of type 'item_reference'",
    ),
    "a file": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        "input item 0: a part of type 'input_file' cannot be expressed",
    ),
    "a picture by id": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input item 0: a picture by file_id cannot be expressed",
    ),
    "safety checks": (
        {"input": [{"type": "computer_call", "call_id": "c", "action": {}, "pending_safety_checks": [{"id": "s"}]}]},
        "input item 0: pending_safety_checks cannot be expressed",
    ),
    "a call without a name": (
        {"input": [{"type": "function_call", "call_id": "c"}]},
        "input item 0: name must be text",
    ),
    "input of another kind": ({"input": 5}, "input must be a list of objects"),
    "no input": ({"input": []}, "input must have at least one item"),
    "an item's unknown field": (
        {"input": [{"role": "user", "content": "x", "extra": 1}]},
        "input item 0 has the field 'extra', which is not supported",
    ),
    "a part's unknown field": (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "extra": 1}]}]},
        "input item 0: input_text has the field 'extra', which is not supported",
    ),
    "a role": ({"input": [{"role": "tool", "content": "x"}]}, "input item 0: role must be user"),
    "a flag": ({"stream": "yes"}, "stream must be true or false"),
}


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_expressed_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as caught:
        read({"input": "x", **body})

    assert str(caught.value).startswith(said)
    assert caught.value.status in (400, 404)


def test_a_conversation_goes_on_from_a_response_without_its_instructions() -> None:
    memory = SessionMemory()
    memory.conversations.keep("resp_1", Conversation((USER, {"role": "assistant", "content": "a"}), 2))

    request = read({"previous_response_id": "resp_1", "input": "y", "instructions": "new"}, memory)

    assert [message["content"] for message in request["messages"]] == ["new", "x", "a", "y"]
    with pytest.raises(Refused, match="the conversation has more than 10 bytes"):
        read({"previous_response_id": "resp_1", "input": "long enough"}, memory, most=10)


@pytest.mark.parametrize(
    ("written", "sent", "expected"),
    [
        ('{"action":{"type":"wait"}}', {"type": "wait"}, '{"action":{"type":"wait"}}'),
        ('{"action":{"type":"wait"}}', {"type": "screenshot"}, '{"action": {"type": "screenshot"}}'),
        ("no json", {"type": "wait"}, '{"action": {"type": "wait"}}'),
    ],
)
def test_arguments_are_sent_back_as_the_model_wrote_them_unless_they_were_changed(
    written: str, sent: dict[str, Any], expected: str
) -> None:
    memory = SessionMemory()
    memory.keep(Reply({}, "", (RawToolCall("c1", "computer", written),), "", Usage(), thinking={"reasoning": "hm"}))
    items = [
        {"type": "reasoning", "summary": [{"text": "t"}]},
        {"type": "computer_call", "call_id": "c1", "action": sent},
    ]

    (message,) = read({"input": items}, memory)["messages"]

    assert message["tool_calls"][0]["function"]["arguments"] == expected
    assert message["reasoning"] == "t"
