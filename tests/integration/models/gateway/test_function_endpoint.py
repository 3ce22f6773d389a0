"""A function of the program's own, served as a run's model."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from rollout_tasks import FunctionEndpoint, UserError, serve_function
from rollout_tasks.errors import FailureClass, RolloutFailure

ANSWER: dict[str, Any] = {
    "model": "step-7",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "42"},
            "token_ids": [5, 6, 7],
        }
    ],
    "prompt_token_ids": [1, 2, 3, 4],
    "usage": {"prompt_tokens": 4, "completion_tokens": 3},
}
MESSAGES: Any = [{"role": "user", "content": "6 * 7?"}]


def client(endpoint: FunctionEndpoint, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(**{"api_key": endpoint.api_key, **options}, base_url=endpoint.base_url, max_retries=0)


def ask(endpoint: FunctionEndpoint, **options: Any) -> Any:
    with client(endpoint) as one:
        return one.chat.completions.create(model="any", messages=MESSAGES, **options)


async def answer(_request: dict[str, Any]) -> dict[str, Any]:
    return ANSWER


def answer_in_a_thread(_request: dict[str, Any]) -> dict[str, Any]:
    return ANSWER


@pytest.mark.parametrize("function", [answer, answer_in_a_thread])
def test_a_function_is_asked_as_an_endpoint_is(function: Any) -> None:
    asked: list[dict[str, Any]] = []

    def noted(request: dict[str, Any]) -> Any:
        asked.append(request)
        return function(request)

    with serve_function(noted if function is answer_in_a_thread else function, "mine") as endpoint:
        reply = ask(endpoint, temperature=0.5, extra_body={"return_token_ids": True})
        with client(endpoint) as one:
            assert [model.id for model in one.models.list()] == ["mine"]

    (choice,) = reply.choices
    assert (reply.model, choice.message.content, reply.usage.total_tokens) == ("step-7", "42", 7)
    assert (reply.prompt_token_ids, choice.token_ids) == ([1, 2, 3, 4], [5, 6, 7])
    if asked:
        assert (asked[0]["model"], asked[0]["messages"], asked[0]["temperature"]) == ("mine", MESSAGES, 0.5)


def test_more_rollouts_than_one_agent_has_calls_are_served_at_once() -> None:
    everybody = 40
    here = asyncio.Barrier(everybody)

    async def meet(_request: dict[str, Any]) -> dict[str, Any]:
        await here.wait()
        return ANSWER

    with serve_function(meet) as endpoint, ThreadPoolExecutor(everybody) as pool:
        replies = list(pool.map(lambda _: ask(endpoint), range(everybody)))

    assert all(reply.choices[0].message.content for reply in replies)


def fail(_request: dict[str, Any]) -> Any:
    raise ValueError("no such weights")


def too_busy(_request: dict[str, Any]) -> Any:
    raise RolloutFailure(FailureClass.MODEL_OVERLOAD, "the sampler is being reloaded")


def run_out(_request: dict[str, Any]) -> Any:
    return next(iter(()))


def leave(_request: dict[str, Any]) -> Any:
    sys.exit(3)


async def leave_later(_request: dict[str, Any]) -> Any:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


async def give_up(_request: dict[str, Any]) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [
        (run_out, 502, "the engine of model policy failed: StopIteration"),
        (leave, 502, "the engine of model policy failed: SystemExit: 3"),
        (leave_later, 502, "the engine of model policy failed: KeyboardInterrupt"),
        (give_up, 502, "the engine of model policy failed: CancelledError"),
        (fail, 502, "the engine of model policy failed: ValueError: no such weights"),
        (too_busy, 503, "the sampler is being reloaded"),
        (lambda _request: {"choices": []}, 502, "the function of model policy answered "),
        (lambda _request: None, 502, "the function of model policy answered "),
        (lambda _request: {"choices": [{"message": object()}]}, 502, "the function of model policy returned no JSON: "),
    ],
    ids=[
        "out of replies",
        "exits",
        "exits later",
        "cancels itself",
        "it raises",
        "it is overloaded",
        "no choice",
        "nothing",
        "not JSON",
    ],
)
def test_what_a_function_does_wrong_fails_that_call_alone(function: Any, status: int, said: str) -> None:
    calls = iter([function, answer_in_a_thread])

    with serve_function(lambda request: next(calls)(request)) as endpoint:
        with pytest.raises(openai.APIStatusError) as failed:
            ask(endpoint)
        assert ask(endpoint).choices

    assert failed.value.status_code == status
    assert said in str(failed.value)


@pytest.mark.parametrize("function", [leave_later, give_up])
def test_so_does_what_a_coroutine_function_does_wrong(function: Any) -> None:
    calls = iter([function, answer])

    async def one_after_the_other(request: dict[str, Any]) -> Any:
        return await next(calls)(request)

    with serve_function(one_after_the_other) as endpoint:
        with pytest.raises(openai.APIStatusError) as failed:
            ask(endpoint)
        assert ask(endpoint).choices

    assert failed.value.status_code == 502


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(UserError, match="serve_function: needs a function, got int"), serve_function(5):  # type: ignore[arg-type]
        pass


def test_only_who_has_the_key_is_answered() -> None:
    with serve_function(answer) as endpoint:
        with client(endpoint, api_key="another") as one, pytest.raises(openai.AuthenticationError):
            one.chat.completions.create(model="any", messages=MESSAGES)
        port = int(endpoint.base_url.split(":")[2].split("/")[0])
        with pytest.raises(UserError, match=r"cannot listen at 127\.0\.0\.1"), serve_function(answer, port=port):
            pass
    with pytest.raises(openai.APIConnectionError):
        ask(endpoint)
    with serve_function(answer, port=port) as again:
        assert ask(again).choices
