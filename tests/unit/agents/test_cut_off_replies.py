"""A reply that a token limit or a content filter stopped is no final answer: the model is told to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.config import Limits
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.sent_messages import EMPTY_REPLY, KEPT_OF_CUT_OFF
from rollout_tasks.trajectories.reader import read_trajectory
from tests.unit.agents.chat_endpoint import OVERFLOW, ChatEndpoint, Gallery, play, pushes, said

BRIEFER = (
    "Your reply was cut off at its token limit: go on more briefly, with a tool call or your final answer as text."
)
CUT_OFF = [
    pytest.param("The door is made of oak, and", id="text"),
    pytest.param(" ", id="blank"),
    pytest.param("", id="empty"),
    pytest.param(None, id="nothing but thinking"),
]


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


@pytest.mark.parametrize("text", CUT_OFF)
def test_the_model_is_told_and_goes_on(endpoint: ChatEndpoint, text: str | None) -> None:
    endpoint.will(said(text, finish_reason="length", reasoning="Hm, the door ..."), said("It is open."))

    episode = play(endpoint, Gallery(0))

    assert (episode.answer, episode.ending, episode.turns) == ("It is open.", "answer", 2)
    cut_off, told = endpoint.bodies[1]["messages"][-2:]
    stays = text if text and text.strip() else EMPTY_REPLY
    assert cut_off == {"role": "assistant", "content": stays}, "what it had said stays in the conversation"
    assert told == {"role": "user", "content": BRIEFER}


@pytest.mark.parametrize(
    ("limit", "used", "named"),
    [
        (500, 500, "a reply cut off at its token limit (--max-completion-tokens 500)"),
        (500, 0, "a reply cut off at its token limit (--max-completion-tokens 500)"),
        (500, 499, "a reply cut off at its token limit"),
        (None, 500, "a reply cut off at its token limit"),
    ],
    ids=["the run's", "not counted", "another one", "the endpoint's"],
)
def test_three_in_a_row_end_it_as_parse(endpoint: ChatEndpoint, limit: int | None, used: int, named: str) -> None:
    endpoint.completion_tokens = used
    endpoint.will(*[said("The door", finish_reason="length")] * 3)

    with pytest.raises(RolloutFailure) as caught:
        play(endpoint, Gallery(0), max_completion_tokens=limit)

    assert caught.value.failure_class is FailureClass.PARSE
    assert str(caught.value) == f"3 turns in a row without a usable call or a final text, the last: {named}"


def test_a_usable_turn_forgives_the_ones_before(endpoint: ChatEndpoint) -> None:
    cut_off = said("The door", finish_reason="length")
    endpoint.will(cut_off, cut_off, pushes(1, turn=3), cut_off, cut_off, said("It is open."))

    assert play(endpoint, Gallery(0)).turns == 6


def test_empty_and_cut_off_replies_count_together(endpoint: ChatEndpoint) -> None:
    endpoint.will(said("The door", finish_reason="length"), said(""), said(None, finish_reason="length"))

    with pytest.raises(RolloutFailure, match=r"3 turns in a row .* the last: a reply cut off at its token limit"):
        play(endpoint, Gallery(0))


def test_whole_calls_of_a_reply_that_was_cut_off_are_executed(endpoint: ChatEndpoint) -> None:
    world = Gallery(1)
    endpoint.will(pushes(2, turn=1, finish_reason="length"), said("It is open."))

    assert play(endpoint, world).answer == "It is open."
    assert len(world.shown) == 3
    assert BRIEFER not in str(endpoint.bodies[1])


@pytest.mark.parametrize(
    ("ended", "executed", "reason"),
    [
        ("length", 1, "arguments are cut off: the reply reached its token limit"),
        ("content_filter", 0, "arguments are not whole: a content filter stopped the reply"),
        ("tool_calls", 2, ""),
    ],
)
@pytest.mark.parametrize("arguments", ["", None])
def test_a_call_that_ends_before_its_arguments_is_not_executed(
    endpoint: ChatEndpoint, ended: str, executed: int, reason: str, arguments: str | None
) -> None:
    """Some endpoints write no arguments at all where a call needs none, so that one before the last may be whole."""
    world = Gallery(1)
    both = pushes(2, turn=1, finish_reason=ended)
    for call in both["message"]["tool_calls"]:
        call["function"]["arguments"] = arguments
    endpoint.will(both, said("It is open."))
    play(endpoint, world)

    answers = [message["content"] for message in endpoint.bodies[1]["messages"] if message["role"] == "tool"]
    assert ['"success"' in answer for answer in answers] == [place < executed for place in range(2)]
    assert len(world.shown) == 1 + executed
    assert reason in answers[-1]


def test_a_reply_cut_off_in_the_last_turn_is_no_answer(endpoint: ChatEndpoint) -> None:
    endpoint.will(said("The door", finish_reason="length"))

    with pytest.raises(RolloutFailure, match="no answer after 1 turns") as caught:
        play(endpoint, Gallery(0), limits=Limits(max_turns=1))

    assert caught.value.failure_class is FailureClass.MAX_TURNS


LONG = "The door. " * 10_000


def test_only_the_beginning_of_a_cut_off_reply_is_sent_back_and_all_of_it_is_recorded(
    endpoint: ChatEndpoint, tmp_path: Path
) -> None:
    endpoint.will(said(LONG, finish_reason="length", reasoning=LONG), pushes(1, turn=2), said("It is open."))
    play(endpoint, Gallery(1), tmp_path, keep_thinking=True)

    beginning = LONG[:KEPT_OF_CUT_OFF]
    for body in endpoint.bodies[1:]:
        assert body["messages"][2] == {"role": "assistant", "content": beginning, "reasoning": beginning}
    recorded = read_trajectory(tmp_path)
    assert recorded.messages[2]["content"] == LONG
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (json.dumps({"note": LONG}), json.dumps({"note": LONG})),
        (json.dumps({"note": LONG})[:-2], "{}"),
        ('{"note": "The', "{}"),
    ],
    ids=["whole", "cut off", "short"],
)
def test_long_arguments_that_are_cut_off_are_not_sent_back(
    endpoint: ChatEndpoint, tmp_path: Path, arguments: str, sent: str
) -> None:
    both = pushes(2, turn=1, finish_reason="length")
    both["message"]["tool_calls"][1]["function"]["arguments"] = arguments
    endpoint.will(both, said("It is open."))
    play(endpoint, Gallery(0), tmp_path)

    calls = endpoint.bodies[1]["messages"][2]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ["{}", sent]
    recorded = read_trajectory(tmp_path)
    assert recorded.messages[2]["tool_calls"][1]["function"]["arguments"] == arguments
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


@pytest.mark.parametrize(
    ("choices", "failure", "says"),
    [
        ([OVERFLOW], FailureClass.MODEL, "no longer fits"),
        (
            [said("The door", finish_reason="length"), OVERFLOW],
            FailureClass.PARSE,
            "after a reply cut off at its token",
        ),
        (
            [pushes(1, turn=1, finish_reason="length"), OVERFLOW],
            FailureClass.PARSE,
            "after a reply cut off at its token",
        ),
        ([said("The door", finish_reason="length"), pushes(1, turn=2), OVERFLOW], FailureClass.MODEL, "no longer fits"),
        ([said(""), OVERFLOW], FailureClass.MODEL, "no longer fits"),
    ],
    ids=["first", "after a text", "after a call", "a turn later", "after an empty reply"],
)
def test_a_context_that_a_cut_off_reply_used_up_is_the_agents_failure(
    endpoint: ChatEndpoint, choices: list[dict[str, Any]], failure: FailureClass, says: str
) -> None:
    endpoint.will(*choices)
    with pytest.raises(RolloutFailure, match=says) as caught:
        play(endpoint, Gallery(0))

    assert caught.value.failure_class is failure
    assert "The maximum context length is 49152 tokens" in str(caught.value)


@pytest.mark.parametrize("text", ["", None, " \n"])
@pytest.mark.parametrize("more", [{}, {"reasoning": "Hm."}, {"tool_calls": []}])
def test_words_stand_in_the_place_of_an_empty_reply(
    endpoint: ChatEndpoint, tmp_path: Path, text: str | None, more: dict[str, Any]
) -> None:
    """Some endpoints refuse an empty message, and others two messages of the user in a row."""
    endpoint.will(pushes(1, turn=1), said(text, **more), said("It is open."))
    assert play(endpoint, Gallery(0), tmp_path, keep_thinking=True).answer == "It is open."

    call, _, empty, told = endpoint.bodies[2]["messages"][-4:]
    thinking = {"reasoning": "Hm."} if "reasoning" in more else {}
    assert empty == {"role": "assistant", "content": EMPTY_REPLY, **thinking}
    assert told["content"].startswith("Your reply was empty.")
    assert call["content"] is None, "a call needs no words"
    recorded = read_trajectory(tmp_path)
    assert recorded.messages[4] == {"role": "assistant", "content": text or ""}
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


def test_a_cut_off_reply_that_begins_with_blanks_is_an_empty_one(endpoint: ChatEndpoint) -> None:
    endpoint.will(said(" " * KEPT_OF_CUT_OFF + "The door", finish_reason="length"), said("It is open."))
    play(endpoint, Gallery(0))

    assert endpoint.bodies[1]["messages"][-2]["content"] == EMPTY_REPLY


def test_a_filtered_text_is_no_answer(endpoint: ChatEndpoint) -> None:
    endpoint.will(said("I can", finish_reason="content_filter"), said("It is open."))

    assert play(endpoint, Gallery(0)).answer == "It is open."
    assert "stopped by a content filter" in endpoint.bodies[1]["messages"][-1]["content"]


def test_three_filtered_replies_in_a_row_end_it_as_parse(endpoint: ChatEndpoint) -> None:
    endpoint.will(*[said("I can", finish_reason="content_filter")] * 3)
    with pytest.raises(RolloutFailure, match="the last: a reply that the endpoint's content filter stopped") as caught:
        play(endpoint, Gallery(0))

    assert caught.value.failure_class is FailureClass.PARSE


def test_a_refusal_ends_it_at_once_as_parse(endpoint: ChatEndpoint) -> None:
    endpoint.will(said("I will not.", finish_reason="refusal"))
    with pytest.raises(RolloutFailure, match=r"the model refused to go on .*: I will not\.") as caught:
        play(endpoint, Gallery(0))

    assert caught.value.failure_class is FailureClass.PARSE


@pytest.mark.parametrize("arguments", ['{"force": 1', '{"force": NaN}', "[1]", "null", "", '"text"', "1e999"])
def test_arguments_that_are_no_object_are_told_to_the_model_and_not_sent_back(
    endpoint: ChatEndpoint, tmp_path: Path, arguments: str
) -> None:
    """vLLM and others parse what they are sent, and would refuse the rest of the conversation."""
    wrong = pushes(1, turn=1)
    wrong["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    endpoint.will(wrong, pushes(1, turn=2), said("It is open."))

    assert play(endpoint, Gallery(1), tmp_path).answer == "It is open."

    sent = endpoint.bodies[2]["messages"]
    for message in sent:
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    recorded = read_trajectory(tmp_path)
    assert recorded.messages[2]["tool_calls"][0]["function"]["arguments"] == arguments
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]
