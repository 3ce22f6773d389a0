"""Replies of an engine in the form of each API, whole and as a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.chat import CHAT
from rollout_tasks.models.gateway.client_api import ClientApi
from rollout_tasks.models.gateway.engine import EngineReply, read_completion
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.messages_api import MESSAGES
from rollout_tasks.models.gateway.responses_api import RESPONSES
from rollout_tasks.models.served import Served

COMPUTER = {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "linux"}
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}


def answer(text: str | None = "a", *calls: tuple[str, str], finish: str = "stop", **more: Any) -> EngineReply:
    message: dict[str, Any] = {"role": "assistant", "content": text, **more.pop("message", {})}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "finish_reason": finish, "message": message, **more}
    body = {"model": "policy", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    return read_completion(json.dumps(body), Usage(requests=1), Served())


def reply(dialect: ClientApi, answered: EngineReply, **body: Any) -> dict[str, Any]:
    given = (
        {"model": "m", "input": "x"}
        if dialect is RESPONSES
        else {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    )
    if dialect is MESSAGES:
        given["max_tokens"] = 5
    memory = SessionMemory()
    return dialect.reply(dialect.read({**given, **body}, memory, 1 << 20), answered, "1", memory)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(place: int, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"c{place}", "name": "f", "input": given}


BLOCKS: dict[str, tuple[EngineReply, list[dict[str, Any]], str]] = {
    "text": (answer(), [text_block("a")], "end_turn"),
    "nothing": (answer(None), [], "end_turn"),
    "cut off": (answer(finish="length"), [text_block("a")], "max_tokens"),
    "filtered": (answer(finish="content_filter"), [text_block("a")], "refusal"),
    "calls": (
        answer("a", ("f", '{"x": 1}'), ("f", ""), finish="tool_calls"),
        [text_block("a"), use(0, x=1), use(1)],
        "tool_use",
    ),
    "a call with another finish reason": (answer(None, ("f", "{}")), [use(0)], "tool_use"),
    "arguments that are no object": (
        answer(None, ("f", '{"x": '), ("f", "[1]"), ("f", "[" * 5000), ("f", '{"x": NaN}')),
        [
            use(0, invalid_arguments='{"x": '),
            use(1, invalid_arguments="[1]"),
            use(2, invalid_arguments="[" * 5000),
            use(3, invalid_arguments='{"x": NaN}'),
        ],
        "tool_use",
    ),
    "thinking": (
        answer(message={"reasoning": "hm"}),
        [{"type": "thinking", "thinking": "hm", "signature": ""}, text_block("a")],
        "end_turn",
    ),
}


@pytest.mark.parametrize(("answered", "blocks", "why"), BLOCKS.values(), ids=BLOCKS.keys())
def test_a_reply_becomes_blocks(answered: EngineReply, blocks: list[dict[str, Any]], why: str) -> None:
    message = reply(MESSAGES, answered)

    assert (message["content"], message["stop_reason"]) == (blocks, why)
    assert (message["model"], message["role"], message["type"]) == ("policy", "assistant", "message")
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (7, 3)


@pytest.mark.parametrize(("stop", "why"), [("END", "stop_sequence"), ("other", "end_turn"), (2, "end_turn")])
def test_a_stop_sequence_is_named_if_the_client_asked_for_it(stop: Any, why: str) -> None:
    message = reply(MESSAGES, answer(stop_reason=stop), stop_sequences=["END"])

    assert message["stop_reason"] == why
    assert message["stop_sequence"] == ("END" if why == "stop_sequence" else None)


def function(place: int, arguments: str, name: str = "f") -> dict[str, Any]:
    ids = {"id": f"fc_1_{place}", "call_id": f"c{place}", "status": "completed"}
    return {"type": "function_call", **ids, "name": name, "arguments": arguments}


def said(text: str, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [part]}


def computer(**acted: Any) -> dict[str, Any]:
    ids = {"id": "cu_1_0", "call_id": "c0", "status": "completed"}
    return {"type": "computer_call", **ids, "pending_safety_checks": [], **acted}


def acting(*actions: Any) -> str:
    return json.dumps({"actions": actions})


ITEMS: dict[str, tuple[EngineReply, dict[str, Any], list[dict[str, Any]]]] = {
    "text": (answer(), {}, [said("a")]),
    "nothing": (answer(None), {}, [said("")]),
    "cut off": (answer(finish="length"), {}, [said("a", "incomplete")]),
    "calls": (answer("a", ("f", "{"), ("f", "{}")), {}, [said("a"), function(0, "{"), function(1, "{}")]),
    "calls alone": (answer(None, ("f", "{}")), {}, [function(0, "{}")]),
    "thinking": (
        answer(message={"reasoning_content": "hm"}),
        {},
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            said("a"),
        ],
    ),
    "thinking as a summary": (
        answer(message={"reasoning_content": "hm"}),
        {"reasoning": {"summary": "concise"}},
        [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "content": []},
            said("a"),
        ],
    ),
    "an action": (
        answer(None, ("computer", json.dumps({"action": CLICK}))),
        {"tools": [COMPUTER]},
        [computer(action=CLICK)],
    ),
    "actions": (
        answer(None, ("computer", acting(CLICK, {"type": "wait"}))),
        {"tools": [{"type": "computer"}]},
        [computer(actions=[CLICK, {"type": "wait"}])],
    ),
    "a function of that name": (
        answer(None, ("computer", acting(CLICK))),
        {"tools": [{"type": "function", "name": "computer"}]},
        [function(0, acting(CLICK), "computer")],
    ),
}


@pytest.mark.parametrize(("answered", "body", "items"), ITEMS.values(), ids=ITEMS.keys())
def test_a_reply_becomes_items(answered: EngineReply, body: dict[str, Any], items: list[dict[str, Any]]) -> None:
    response = reply(RESPONSES, answered, **body)

    assert response["output"] == items
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (7, 3)
    cut_off = answered.reply.cut_off
    assert response["status"] == ("incomplete" if cut_off else "completed")
    assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if cut_off else None)


@pytest.mark.parametrize(
    "actions",
    [
        [],
        ["click"],
        [{"type": "dance"}],
        [{"type": ["click"]}],
        [{"type": "click", "x": 1, "y": 2}],
        [{"type": "click", "button": "left", "x": "1", "y": 2}],
        [{"type": "click", "button": ["left"], "x": 1, "y": 2}],
        [{"type": "move", "x": 10**400, "y": 2}],
        [{"type": "move", "x": True, "y": 2}],
        [{"type": "drag", "path": [{"x": 1}]}],
        [{"type": "keypress", "keys": "ctrl"}],
        [{"type": "type", "text": 5}],
        [{"type": "wait", "why": "x"}],
        [{"type": "wait"}] * 101,
    ],
)
def test_what_is_no_action_stays_a_call_of_a_function(actions: list[Any]) -> None:
    response = reply(RESPONSES, answer(None, ("computer", acting(*actions))), tools=[{"type": "computer"}])

    assert response["output"] == [function(0, acting(*actions), "computer")]


def test_chat_has_what_the_engine_said_and_what_the_client_asked_for() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]}
    answered = answer(
        "a", ("f", '{"x":1}'), finish="tool_calls", logprobs=logprobs, token_ids=[4], message={"reasoning": "hm"}
    )

    plain = reply(CHAT, answered)["choices"][0]
    asked = reply(CHAT, answered, logprobs=True, return_token_ids=True)["choices"][0]

    assert plain["message"] == {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "reasoning": "hm",
        "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
    }
    assert (plain["finish_reason"], plain["logprobs"]) == ("tool_calls", None)
    assert "token_ids" not in plain
    assert (asked["logprobs"], asked["token_ids"]) == (logprobs, [4])


def events(dialect: ClientApi, answered: EngineReply, **body: Any) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    whole = reply(dialect, answered, **body)
    asked = dialect.read(
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], **body}
        if dialect is not RESPONSES
        else {"model": "m", "input": "x", **body},
        SessionMemory(),
        1 << 20,
    )
    found = []
    for block in b"".join(dialect.events(whole, asked)).decode().removesuffix("\n\n").split("\n\n"):
        *names, data = block.split("\n")
        found.append((names[0].removeprefix("event: ") if names else "", data.removeprefix("data: ")))
    return found, whole


FULL = answer("a", ("f", '{"x": 1}'), ("f", "{}"), message={"reasoning": "hm"})


def test_a_stream_of_messages_comes_to_the_whole_reply() -> None:
    found, whole = events(MESSAGES, FULL)

    built: dict[str, Any] = {}
    for name, text in found:
        data = json.loads(text)
        assert data["type"] == name
        match name:
            case "message_start":
                built = data["message"]
            case "content_block_start":
                assert data["index"] == len(built["content"])
                built["content"].append(data["content_block"])
            case "content_block_delta":
                block, delta = built["content"][-1], data["delta"]
                if delta["type"] == "input_json_delta":
                    block["input"] = json.loads(delta["partial_json"])
                else:
                    key = delta["type"].removesuffix("_delta")
                    block[key] += delta[key]
            case "message_delta":
                built |= data["delta"]
                built["usage"] |= data["usage"]
    assert built == whole
    assert found[-1][0] == "message_stop"


def test_a_stream_of_chat_comes_to_the_whole_reply() -> None:
    found, whole = events(CHAT, FULL, stream_options={"include_usage": True})

    *chunks, (_, end) = found
    said, ended, used = (json.loads(text) for _, text in chunks)
    delta = said["choices"][0]["delta"]
    calls = [{name: value for name, value in call.items() if name != "index"} for call in delta.pop("tool_calls")]
    message = whole["choices"][0]["message"]
    assert {**delta, "tool_calls": calls, "refusal": None} == message
    assert ended["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert used["usage"] == whole["usage"]
    assert end == "[DONE]"


def test_a_stream_of_responses_ends_with_the_whole_reply() -> None:
    found, whole = events(RESPONSES, FULL)

    parsed = [json.loads(text) for _, text in found]
    assert [one["sequence_number"] for one in parsed] == list(range(len(parsed)))
    assert [name for name, _ in found] == [one["type"] for one in parsed]
    assert [one["item"] for one in parsed if one["type"] == "response.output_item.done"] == whole["output"]
    deltas = [one["delta"] for one in parsed if one["type"].endswith(".delta")]
    assert deltas == ["hm", "a", '{"x": 1}', "{}"]
    assert (parsed[-1]["type"], parsed[-1]["response"]) == ("response.completed", whole)


ERRORS = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    502: ("server_error", "api_error"),
    503: ("server_error", "overloaded_error"),
}


@pytest.mark.parametrize(("status", "kinds"), ERRORS.items())
def test_errors_have_the_shape_of_each_api(status: int, kinds: tuple[str, str]) -> None:
    openais, anthropics = kinds

    for dialect in (CHAT, RESPONSES):
        error = {"message": "why", "type": openais, "param": None, "code": "c"}
        assert dialect.error(status, "why", "c") == {"error": error}
    assert MESSAGES.error(status, "why", "c") == {"type": "error", "error": {"type": anthropics, "message": "why"}}
