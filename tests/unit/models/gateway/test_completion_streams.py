"""Streams of Chat Completions, cut anywhere, come to the reply that was not streamed."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.completion_stream import EventLines, StreamedReply
from rollout_tasks.models.gateway.engine import EngineReply, read_completion
from rollout_tasks.models.parsing import NotAReplyError
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.models.served_call import Sampled


def feed(text: bytes, size: int) -> list[str]:
    lines = EventLines()
    return [data for at in range(0, len(text), size) for data in lines.feed(text[at : at + size])]


EVENTS = {
    "one": (b"data: a\n\n", ["a"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "without a blank": (b"data:a\n\n", ["a"]),
    "several lines": (b"data: a\ndata: b\n\n", ["a\nb"]),
    "comments and other fields": (b": ping\n\nevent: x\nid: 1\ndata: a\n\n", ["a"]),
    "two bytes in a letter": ("data: ä\n\n".encode(), ["ä"]),
    "bad UTF-8": (b"data: \xff\n\n", ["\ufffd"]),
    "not ended": (b"data: a\n\ndata: b", ["a"]),
    "empty": (b"\n\n\n", []),
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(("text", "data"), EVENTS.values(), ids=EVENTS.keys())
def test_events_may_be_cut_anywhere(text: bytes, data: list[str], size: int) -> None:
    assert feed(text, size) == data


def piece(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "model": "policy", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def part(index: Any, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return {"index": index, "function": function, **more}


def joined(*pieces: dict[str, Any]) -> EngineReply:
    reply = StreamedReply()
    for one in pieces:
        reply.add(one)
    return read_completion(reply.body(), Usage(), Served("r"))


def test_text_thinking_and_parallel_calls_are_put_together() -> None:
    answer = joined(
        piece(role="assistant", content="", reasoning_content="h"),
        piece(reasoning_content="m"),
        piece(content="a"),
        piece(content="b", tool_calls=[part(0, "", id="c1", name="f")]),
        piece(tool_calls=[part(1, '{"y"', id="c2", name="g"), part(0, '{"x"')]),
        piece(tool_calls=[part(0, ":1}"), part(1, ":2}")]),
        piece("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    )

    reply = answer.reply
    assert (reply.text, reply.thinking, reply.finish_reason) == ("ab", {"reasoning_content": "hm"}, "tool_calls")
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("c1", "f", '{"x":1}'),
        ("c2", "g", '{"y":2}'),
    ]
    assert (reply.served_by, reply.usage.prompt_tokens, reply.usage.completion_tokens) == ("policy", 7, 3)


def test_the_sampled_tokens_are_put_together() -> None:
    def sampled(token: int, logprob: float, **more: Any) -> dict[str, Any]:
        logprobs = {"content": [{"token": "t", "logprob": logprob}]}
        return {"choices": [{"index": 0, "delta": {}, "token_ids": [token], "logprobs": logprobs, **more}]}

    first = {**sampled(4, -0.5), "prompt_token_ids": [1, 2]}
    spans = [{"version": 3, "start": 0, "end": 1}, {"version": 4, "start": 1, "end": 2}]

    answer = joined(first, sampled(5, -0.25, finish_reason="stop", weight_versions=spans))

    assert answer.sampled == Sampled((1, 2), (4, 5), (), (-0.5, -0.25))
    assert answer.served == Served("r", "3", "4", (VersionSpan("3", 0, 1), VersionSpan("4", 1, 2)))


WRONG = {
    "with a stream that ends before its reply does": [piece(content="a")],
    "with a piece without choices": [{"choices": None}],
    "with a piece whose choice is not an object": [{"choices": [5]}],
    "with a part of a tool call that has no place": [piece(tool_calls=[part(128, "")])],
    "with a part of a tool call that has no place: '5'": [piece(tool_calls=[5])],
    "with a tool call without id or name": [piece("stop", tool_calls=[part(0, "{}")])],
    "with 2 log-probabilities for 1 ids": [
        {
            "choices": [
                {"finish_reason": "stop", "token_ids": [1], "logprobs": {"content": [{"logprob": -1}, {"logprob": -1}]}}
            ]
        }
    ],
    "with a log-probability 0 that is not a finite number": [
        {"choices": [{"finish_reason": "stop", "logprobs": {"content": [{"logprob": None}]}}]}
    ],
    "with version span 0 from 1 to 2": [
        {"choices": [{"finish_reason": "stop", "weight_versions": [{"version": "a", "start": 1, "end": 2}]}]}
    ],
    "with a version span 0 without version": [
        {"choices": [{"finish_reason": "stop", "weight_versions": [{"start": 0, "end": 2}]}]}
    ],
}


@pytest.mark.parametrize(("said", "pieces"), WRONG.items(), ids=WRONG.keys())
def test_what_is_no_reply_is_said(said: str, pieces: list[dict[str, Any]]) -> None:
    with pytest.raises(NotAReplyError) as caught:
        joined(*pieces)

    assert str(caught.value).startswith(said)


def test_another_choice_is_left_alone() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}

    assert joined(piece(content="a"), other, piece("stop")).reply.text == "a"
