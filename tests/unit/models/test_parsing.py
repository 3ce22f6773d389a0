from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.models.base import RawToolCall, Usage
from rollout_tasks.models.messages_parsing import parse_messages_response
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


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({"google": {"thought_signature": "c2ln\ud800"}}, {"google": {"thought_signature": "c2ln\ufffd"}}),
        ({"google": {"thought_signature": "s" * 500_000}}, {"google": {"thought_signature": "s" * 500_000}}),
        *((nothing, None) for nothing in (None, {}, "c2ln", ["c2ln"], 5)),
    ],
)
def test_what_an_endpoint_wants_back_with_a_call_is_kept(extra: Any, kept: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0}
    reply = parse_reply(json.dumps(response({"tool_calls": [{**call, "extra_content": extra}, call]})), Usage())

    plain = {name: value for name, value in call.items() if name != "index"}
    signed = {**plain, "extra_content": kept} if kept else plain
    assert reply.message["tool_calls"] == [signed, plain]
    assert [call.extra_content for call in reply.tool_calls] == [kept or {}, {}]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"google": {"thought_signature": "s" * 1_000_001}}, "longer than 1000000 characters"),
        ({"a": json.loads("[" * 40 + "]" * 40)}, "nested too deeply"),
    ],
)
def test_what_it_wants_back_has_a_limit(extra: Any, said: str) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}

    with pytest.raises(NotAReplyError, match=f"with a tool call whose extra_content is {said}"):
        parse_reply(json.dumps(response({"tool_calls": [call]})), Usage())


@pytest.mark.parametrize("length", [200, 50_000])
def test_the_id_of_a_call_is_kept_whole_where_a_gateway_puts_a_signature_into_it(length: int) -> None:
    call_id = "call_1__thought__" + "s" * length
    call = {"id": call_id, "function": {"name": "f", "arguments": "{}"}}
    reply = parse_reply(json.dumps(response({"tool_calls": [call]})), Usage())

    assert reply.tool_calls[0].id == reply.message["tool_calls"][0]["id"] == call_id


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, {}),
        ({"reasoning": None, "reasoning_content": None}, {}),
        ({"reasoning": "hm"}, {"reasoning": "hm"}),
        ({"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ({"reasoning": "hm", "reasoning_content": "hm"}, {"reasoning": "hm", "reasoning_content": "hm"}),
        ({"reasoning_content": ""}, {"reasoning_content": ""}),
        ({"reasoning": "a\ud800\0"}, {"reasoning": "a\ufffd\ufffd"}),
        ({"reasoning": ["hm"], "reasoning_content": {"text": "hm"}, "thinking": "hm"}, {}),
    ],
)
def test_thinking_is_kept_beside_the_message(fields: dict[str, Any], thinking: dict[str, str]) -> None:
    reply = parse_reply(json.dumps(response({"role": "assistant", "content": "42", **fields})), Usage())

    assert reply.thinking == thinking
    assert (reply.text, reply.message) == ("42", {"role": "assistant", "content": "42"})


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "4*7"}, {"type": "text", "text": "=28\ud800"}]}
CITED = {"type": "reference", "reference_ids": [1]}


@pytest.mark.parametrize(
    ("parts", "text", "thinking"),
    [
        ([THOUGHT, {"type": "text", "text": "29"}], "29", {"reasoning_content": "4*7=28\ufffd"}),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "29"}], "29", {"reasoning_content": "hm"}),
        ([{"type": "text", "text": "2"}, CITED, {"type": "text", "text": "9\0"}], "29\ufffd", {}),
        ([THOUGHT], "", {"reasoning_content": "4*7=28\ufffd"}),
        ([], "", {}),
    ],
)
def test_content_in_parts_is_the_text_of_its_parts(parts: Any, text: str, thinking: dict[str, str]) -> None:
    reply = parse_reply(json.dumps(response({"role": "assistant", "content": parts})), Usage())

    assert (reply.text, reply.thinking) == (text, thinking)
    assert reply.message == {"role": "assistant", "content": text}


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
        ("[]", "with JSON that is not an object"),
        ("{}", "without choices"),
        ('{"choices": null}', "without choices"),
        ('{"choices": []}', "without choices"),
        ('{"choices": [null]}', "without a message"),
        ('{"choices": [{"finish_reason": "stop"}]}', "without a message"),
        ('{"choices": [{"message": {"content": [1]}}]}', "content that is not text"),
        ('{"choices": [{"message": {"content": {"type": "text"}}}]}', "content that is not text"),
        ('{"choices": [{"message": {"content": [{"type": "text", "text": 5}]}}]}', "content that is not text"),
        ('{"choices": [{"message": {"content": [{"type": "text"}]}}]}', "content that is not text"),
        (
            '{"choices": [{"message": {"content": [{"type": "thinking", "thinking": [5]}]}}]}',
            "content that is not text",
        ),
        (json.dumps(response({"content": [{"type": "text", "text": "a"}] * 1001})), "content that is not text"),
        ('{"choices": [{"message": {"tool_calls": [{"id": "c"}]}}]}', "a tool call without id or name"),
        ('{"choices": [{"message": {"tool_calls": [{"function": {"name": "f"}}]}}]}', "a tool call without id or name"),
        ('{"choices": [{"message": {"tool_calls": ["f"]}}]}', "a tool call without id or name"),
    ],
)
def test_nonsense_is_named(body: str, said: str) -> None:
    with pytest.raises(NotAReplyError, match=said):
        parse_reply(body, Usage())


@pytest.mark.parametrize(
    "usage",
    [
        None,
        5,
        {},
        {"prompt_tokens": None, "completion_tokens": "3"},
        {"prompt_tokens": 10**4000, "completion_tokens": True},
        {"prompt_tokens": -1, "completion_tokens": 1e300},
    ],
)
def test_missing_usage_counts_as_nothing(usage: Any) -> None:
    served = {**response({"content": "x"}), "usage": usage}

    assert parse_reply(json.dumps(served), Usage(requests=1)).usage == Usage(requests=1)


def test_text_that_utf8_has_no_bytes_for_is_replaced() -> None:
    call = {"id": "c\ud800", "function": {"name": "f\udfff", "arguments": '{"a": "\0"}'}}
    choice = {"finish_reason": "stop\ud800", "message": {"content": "a\ud800b\0 \ud83d\ude00", "tool_calls": [call]}}
    said = {"logprobs": {"content": [{"token": "\ud83d", "logprob": -1}]}}

    reply = parse_reply(json.dumps({"model": "m\ud800", "choices": [{**choice, **said}]}), Usage())

    assert reply.text == "a\ufffdb\ufffd \U0001f600"
    assert reply.tool_calls == (RawToolCall("c\ufffd", "f\ufffd", '{"a": "\ufffd"}'),)
    assert (reply.finish_reason, reply.served_by, reply.token_data["tokens"]) == ("stop\ufffd", "m\ufffd", ["\ufffd"])
    assert "\\ud" not in json.dumps(reply.message).replace("\\ud83d\\ude00", "")


@pytest.mark.parametrize("ids", [5, "12", [1, "2"], [1, -1], [1, True], [1.0], [10**30], {"0": 1}])
def test_token_ids_that_are_none_are_left_out(ids: Any) -> None:
    served = response({"content": "42"}, choice={"token_ids": ids}, prompt_token_ids=ids)

    assert parse_reply(json.dumps(served), Usage()).token_data == {}


def test_logprobs_that_are_no_numbers_are_none() -> None:
    entries = ", ".join(
        f'{{"logprob": {said}}}' for said in ("NaN", "-Infinity", "1e999", "9" * 400, '"x"', "0", "-0.5")
    )
    served = (
        '{"choices": [{"message": {"content": "x"}, "token_ids": [1], "logprobs": {"content": [' + entries + "]}}]}"
    )

    found = parse_reply(served, Usage()).token_data["logprobs"]

    assert found == [None, None, None, None, None, 0, -0.5]


def test_too_many_calls_are_named() -> None:
    calls = [{"id": str(number), "function": {"name": "f", "arguments": "{}"}} for number in range(129)]

    with pytest.raises(NotAReplyError, match="with 129 tool calls, more than the 128 that are taken"):
        parse_reply(json.dumps(response({"tool_calls": calls})), Usage())


@pytest.mark.parametrize("call_id", [None, "", [], {"a": 1}, 1.5])
def test_an_id_that_is_none_is_named(call_id: Any) -> None:
    with pytest.raises(NotAReplyError, match="a tool call without id or name"):
        parse_reply(json.dumps(response({"tool_calls": [{"id": call_id, "function": {"name": "f"}}]})), Usage())


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_numbers_that_are_not_finite_are_none(number: str) -> None:
    body = f'{{"content": [{{"type": "tool_use", "input": {{"duration": {number}, "other": 1.5}}}}]}}'

    assert parse_messages_response(body, Usage()).message["content"][0]["input"] == {"duration": None, "other": 1.5}


@pytest.mark.parametrize("content", [None, "", " \n", []])
@pytest.mark.parametrize("ended", ["stop", "content_filter"])
def test_a_refusal_is_no_answer(ended: str, content: Any) -> None:
    message = {"role": "assistant", "content": content, "refusal": "I will not."}
    choice = {"index": 0, "message": message, "finish_reason": ended}
    reply = parse_reply(json.dumps({"choices": [choice]}), Usage())

    assert (reply.refused, reply.text) == (True, "I will not.")
