"""A trainer's engine as a model: requests, the parameters that it samples with, replies, and what is known of them later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.integrations.verl.trainer_model import Lengths, TrainerModel, sampling_parameters
from rollout_tasks.models.gateway.engine import CONTEXT_OVERFLOW, EngineError
from rollout_tasks.trajectories.traces import SampledCall, traces_of
from tests.unit.integrations.verl.letters import LetterFormat, SayingEngine, ids

SAMPLING = {"temperature": 1.0, "top_p": 0.9, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
ASKED = {"role": "user", "content": "go"}
TOOLS = [{"type": "function", "function": {"name": "run"}}]


def model_of(engine: SayingEngine, *, context: int = 1_000, reply: int = 100, **of_format: Any) -> TrainerModel:
    return TrainerModel(engine, LetterFormat(**of_format), SAMPLING, Lengths(context, reply))


def ask(model: TrainerModel, *messages: Any, **fields: Any) -> dict[str, Any]:
    return asyncio.run(model.complete({"messages": list(messages), **fields}))


def test_a_reply_has_what_was_sampled() -> None:
    engine = SayingEngine(["HI|"])

    said = ask(model_of(engine), ASKED)

    [choice] = said["choices"]
    assert said["prompt_token_ids"] == engine.asked[0]["prompt_ids"] == ids("u:go|a:")
    assert (choice["message"], choice["finish_reason"]) == ({"role": "assistant", "content": "hi"}, "stop")
    assert (choice["token_ids"], said["usage"]) == (ids("HI|"), {"prompt_tokens": 7, "completion_tokens": 3})
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == [-0.5] * 3


def test_what_an_agent_sends_back_is_not_tokenised_again() -> None:
    engine = SayingEngine(["HI|", "BYE|"])
    model = model_of(engine)
    reply = ask(model, ASKED)["choices"][0]["message"]

    ask(model, ASKED, reply, {"role": "user", "content": "on"})

    assert engine.asked[1]["prompt_ids"] == ids("u:go|a:HI|u:on|a:")
    assert engine.asked[0]["request_id"] == engine.asked[1]["request_id"]


def test_tool_calls_come_as_such_and_go_into_the_template_as_objects() -> None:
    engine = SayingEngine(['!{"b": 1}|', "1|"])
    model = model_of(engine, builder=LetterFormat().builder)
    choice = ask(model, ASKED, tools=TOOLS)["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "run", "arguments": '{"b": 1}'}
    assert engine.asked[0]["sampling_params"]["stop_token_ids"] == [ord("!")]

    ask(model, {**ASKED, "content": "new"}, choice["message"], {"role": "tool", "content": "1", "tool_call_id": "x"})

    assert engine.asked[1]["prompt_ids"] == ids('u:new|a:{"b": 1}|t:1|a:')


def test_pictures_go_to_the_engine_in_their_order() -> None:
    engine = SayingEngine(["HI|"])
    parts = [
        {"type": "image_url", "image_url": {"url": "one"}},
        {"type": "text", "text": "and"},
        {"type": "image_url", "image_url": {"url": "two"}},
    ]

    ask(model_of(engine), {"role": "user", "content": parts})

    assert engine.asked[0]["image_data"] == ["ONE", "TWO"]
    assert engine.asked[0]["prompt_ids"] == ids("u:[ONE]and[TWO]|a:")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"type": "image_url", "image_url": {"url": "one"}}], "verl's model has no processor for pictures"),
        ([{"type": "input_audio"}], "a part of the kind input_audio"),
    ],
)
def test_what_the_model_cannot_see_fails_the_call(content: Any, said: str) -> None:
    with pytest.raises(RolloutFailure, match=said):
        ask(model_of(SayingEngine([]), sees_pictures=False), {"role": "user", "content": content})


def test_texts_in_parts_are_joined_for_a_model_without_pictures() -> None:
    engine = SayingEngine(["HI|"])
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    ask(model_of(engine, sees_pictures=False), {"role": "user", "content": parts})

    assert engine.asked[0]["prompt_ids"] == ids("u:one\ntwo|a:")


def test_the_trainers_sampling_parameters_count() -> None:
    request = {"temperature": 0.1, "top_p": 0.5, "seed": 3, "frequency_penalty": 1, "max_tokens": 50}

    assert sampling_parameters(request, SAMPLING, 50, ()) == {**SAMPLING, "max_tokens": 50}
    assert sampling_parameters({}, {**SAMPLING, "stop_token_ids": [9]}, 5, [8, 9])["stop_token_ids"] == [8, 9]
    with pytest.raises(RolloutFailure, match="to stop at a text"):
        sampling_parameters({"stop": ["\n"]}, SAMPLING, 5, ())


@pytest.mark.parametrize(
    ("fields", "context", "most"),
    [
        ({}, 1_000, 100),
        ({"max_tokens": 20}, 1_000, 20),
        ({"max_completion_tokens": 30}, 1_000, 30),
        ({"max_completion_tokens": 300}, 1_000, 100),
        ({}, 12, 5),
    ],
)
def test_a_reply_has_as_many_tokens_as_fit(fields: dict[str, Any], context: int, most: int) -> None:
    engine = SayingEngine(["HI|"])

    ask(model_of(engine, context=context), ASKED, **fields)

    assert engine.asked[0]["sampling_params"]["max_tokens"] == most


def test_a_reply_that_was_cut_off_says_so() -> None:
    engine = SayingEngine(["HIHI", "HIH|"])
    model = model_of(engine, reply=4)

    assert [ask(model, ASKED)["choices"][0]["finish_reason"] for _ in range(2)] == ["length", "stop"]


def test_a_prompt_that_leaves_no_room_is_refused_as_agents_expect() -> None:
    with pytest.raises(EngineError, match="the prompt has 7 tokens, and verl's model has a context of 7") as refused:
        ask(model_of(SayingEngine([]), context=7), ASKED)

    assert (refused.value.code, refused.value.status) == (CONTEXT_OVERFLOW, 400)


def test_a_reply_that_the_engine_gave_up_is_to_be_asked_for_again() -> None:
    with pytest.raises(RolloutFailure) as failed:
        ask(model_of(SayingEngine(["HI"], stop_reason="aborted")), ASKED)

    assert failed.value.failure_class is FailureClass.MODEL_OVERLOAD


def test_what_is_known_of_a_reply_is_found_by_its_tokens() -> None:
    model = model_of(SayingEngine(["HI|"], steps=(3, 5)))
    ask(model, ASKED)
    [trace] = traces_of([SampledCall(1, tuple(ids("u:go|a:")), tuple(ids("HI|")), model="policy")])
    [other] = traces_of([SampledCall(1, tuple(ids("u:go|a:")), tuple(ids("HO|")), model="policy")])

    [known] = model.outputs_of(trace)

    assert (known.first_step, known.last_step, known.preempted) == (3, 5, None)
    with pytest.raises(ValueError, match="the trace of call 1 is not what verl's engine sampled"):
        model.outputs_of(other)
