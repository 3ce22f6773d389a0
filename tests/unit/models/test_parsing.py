from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.models.base import RawToolCall, Usage
from rollout_tasks.models.parsing import NotAReplyError, parse_reply


def response(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": message, **more.pop("choice", {})}
    return {"model": "m-1", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}, **more}


def test_a_text_reply() -> None:
    reply = parse_reply(json.dumps(response({"role": "assistant", "content": "42"})), Usage(requests=2, seconds=1.5))

    assert (reply.text, reply.tool_calls, reply.finish_reason, reply.served_by) == ("42", (), "stop", "m-1")
    assert reply.message == {"role": "assistant", "content": "42"}
    assert reply.usage == Usage(7, 3, 2, 1.5)
    assert reply.token_data == {}


def test_tool_calls_and_their_message() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []}

    reply = parse_reply(json.dumps(response(message)), Usage())

    assert reply.tool_calls == (RawToolCall("c", "f", '{"a": 1'),)
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(("given", "text"), [(None, ""), ({"a": 1}, '{"a": 1}'), ("{}", "{}")])
def test_arguments_that_are_no_text_become_one(given: Any, text: str) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": given}}

    assert parse_reply(json.dumps(response({"tool_calls": [call]})), Usage()).tool_calls[0].arguments == text


def test_token_ids_and_logprobs() -> None:
    logprobs = {"content": [{"token": "4", "logprob": -0.1}, {"token": "2", "logprob": -0.2}]}
    served = response({"content": "42"}, choice={"logprobs": logprobs, "token_ids": [19, 17]}, prompt_token_ids=[1, 2])

    data = parse_reply(json.dumps(served), Usage()).token_data

    assert data == {"prompt_token_ids": [1, 2], "token_ids": [19, 17], "logprobs": [-0.1, -0.2]}


def test_logprobs_without_ids_keep_the_tokens() -> None:
    served = response({"content": "4"}, choice={"logprobs": {"content": [{"token": "4", "logprob": -0.1}]}})

    assert parse_reply(json.dumps(served), Usage()).token_data == {"logprobs": [-0.1], "tokens": ["4"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "with bad JSON"),
        ('{"choices": [', "with bad JSON"),
        ("<html>gateway</html>", "with bad JSON"),
        ("[" * 100_000, "with bad JSON"),
        ("[]", "with JSON that is no object"),
        ("{}", "without choices"),
        ('{"choices": null}', "without choices"),
        ('{"choices": []}', "without choices"),
        ('{"choices": [null]}', "without a message"),
        ('{"choices": [{"finish_reason": "stop"}]}', "without a message"),
        ('{"choices": [{"message": {"content": [1]}}]}', "content that is no text"),
        ('{"choices": [{"message": {"tool_calls": [{"id": "c"}]}}]}', "a tool call without id or name"),
        ('{"choices": [{"message": {"tool_calls": [{"function": {"name": "f"}}]}}]}', "a tool call without id or name"),
        ('{"choices": [{"message": {"tool_calls": ["f"]}}]}', "a tool call without id or name"),
    ],
)
def test_nonsense_is_named(body: str, said: str) -> None:
    with pytest.raises(NotAReplyError, match=said):
        parse_reply(body, Usage())


@pytest.mark.parametrize("usage", [None, 5, {}, {"prompt_tokens": None, "completion_tokens": "3"}])
def test_missing_usage_counts_as_nothing(usage: Any) -> None:
    served = {**response({"content": "x"}), "usage": usage}

    assert parse_reply(json.dumps(served), Usage(requests=1)).usage == Usage(requests=1)
