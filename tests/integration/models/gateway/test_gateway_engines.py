"""Functions of the embedding program as engines; and engines that are broken."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.engine import EngineCall, EngineReply, FunctionEngine, read_completion
from rollout_tasks.models.served import Served
from rollout_tasks.models.served_call import Sampled, ServedCall
from tests.integration.models.gateway.upstream import ANSWER, Agent

Open = Callable[..., Agent]


async def _answer(call: EngineCall) -> EngineReply:
    body = json.dumps({**ANSWER, "prompt_token_ids": [1], "weight_versions": [{"version": "w1", "start": 0, "end": 1}]})
    return read_completion(body, Usage(requests=1), Served(replica=f"here {call.session_id}"))


def _blocking(call: EngineCall) -> EngineReply:
    assert threading.current_thread().name != "model-gateway"
    return read_completion(json.dumps(ANSWER), Usage(requests=1), Served(replica="thread"))


@pytest.mark.parametrize(("function", "replica"), [(_answer, "here run/item%2F0/0/1"), (_blocking, "thread")])
def test_a_function_can_be_the_engine(agent: Open, function: Any, replica: str) -> None:
    one = agent(own=FunctionEngine("mine", function))

    answer = one.chat(stream=True)

    assert '"content": "42"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    (call,) = one.recorder.calls
    assert call.served.replica == replica
    assert call.sampling == {"model": "mine"}
    if function is _answer:
        assert call.served.version_at_end == "w1"
        assert call.sampled == Sampled(prompt_ids=(1,))


async def _raises(_call: EngineCall) -> EngineReply:
    raise ZeroDivisionError("no sampler")


async def _overloaded(_call: EngineCall) -> EngineReply:
    raise RolloutFailure(FailureClass.MODEL_OVERLOAD, "the trainer is busy")


async def _nothing(_call: EngineCall) -> Any:
    return None


async def _untrue(_call: EngineCall) -> EngineReply:
    reply = read_completion(json.dumps(ANSWER), Usage(), Served())
    return EngineReply(reply.reply, Sampled((), (1, 2), (), (-1.0,)))


BROKEN = {
    "raises": (_raises, FailureClass.MODEL, "the engine of model mine failed: ZeroDivisionError: no sampler"),
    "overloaded": (_overloaded, FailureClass.MODEL_OVERLOAD, "the trainer is busy"),
    "nothing": (_nothing, FailureClass.MODEL, "the engine of model mine returned NoneType, not an EngineReply"),
    "untrue": (_untrue, FailureClass.MODEL, "model mine answered with 1 log-probabilities for 2 ids of output tokens"),
}


@pytest.mark.parametrize(("function", "failure_class", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_function_that_fails_fails_the_session(
    agent: Open, function: Any, failure_class: FailureClass, said: str
) -> None:
    one = agent(own=FunctionEngine("mine", function))

    assert one.chat().json()["error"]["message"] == said
    assert (one.summary.failure_class, one.summary.failure) == (failure_class, said)


def test_a_call_that_cannot_be_recorded_is_not_answered(agent: Open) -> None:
    one = agent()

    def full(_call: ServedCall) -> None:
        raise OSError(28, "No space left on device")

    one.recorder.record = full  # type: ignore[method-assign]
    answer = one.chat()

    assert answer.status_code == 500
    assert one.summary.failure_class is FailureClass.INTERNAL
    assert "recording a model call: OSError" in one.summary.failure


def test_a_defect_fails_the_session_and_not_the_gateway(agent: Open) -> None:
    class Broken(FunctionEngine):
        def prepared(self, client_request: Any) -> dict[str, Any]:  # noqa: ARG002
            raise KeyError("a defect")

    one = agent(own=Broken("m", _answer))

    assert one.chat().status_code == 500
    assert one.summary.failure_class is FailureClass.INTERNAL
    assert agent().chat().status_code == 200


def test_a_defect_in_a_call_is_recorded(agent: Open) -> None:
    class Broken(FunctionEngine):
        async def answer(self, call: Any, on_piece: Any) -> Any:  # noqa: ARG002
            raise KeyError("a defect")

    one = agent(own=Broken("m", _answer))

    assert one.chat().status_code == 500
    (call,) = one.recorder.calls
    assert (call.outcome, call.failure_class) == ("failed", FailureClass.INTERNAL)
    assert one.summary.failure == "the engine failed: KeyError: 'a defect'"


def test_an_engine_that_does_not_heed_its_end_holds_nobody_up(agent: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.models.gateway.session._END_SECONDS", 0.2)
    begun = threading.Event()

    async def deaf(_call: EngineCall) -> Any:
        begun.set()
        for _ in range(3):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                continue

    one = agent(own=FunctionEngine("m", deaf))
    asking = threading.Thread(target=one.chat)
    asking.start()
    assert begun.wait(20)
    began = time.monotonic()

    one.handle.close()

    assert time.monotonic() - began < 5
    asking.join(20)


def test_an_engine_is_closed_with_its_last_session(agent: Open) -> None:
    class Counting(FunctionEngine):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    engine = Counting("m", _answer)
    one, other = agent(own=engine), agent(own=engine)

    one.handle.close()
    assert engine.closed == 0
    other.handle.close()
    assert engine.closed == 1
