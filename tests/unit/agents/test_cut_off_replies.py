"""A reply that its token limit cut off is no final answer: the model is told to go on more briefly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollout_tasks.config import Limits
from rollout_tasks.errors import FailureClass, RolloutFailure
from tests.unit.agents.chat_endpoint import ChatEndpoint, Gallery, play, pushes, said

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
    assert cut_off == {"role": "assistant", "content": text or ""}, "what it had said stays in the conversation"
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


def test_a_reply_cut_off_in_the_last_turn_is_no_answer(endpoint: ChatEndpoint) -> None:
    endpoint.will(said("The door", finish_reason="length"))

    with pytest.raises(RolloutFailure, match="no answer after 1 turns") as caught:
        play(endpoint, Gallery(0), limits=Limits(max_turns=1))

    assert caught.value.failure_class is FailureClass.MAX_TURNS
