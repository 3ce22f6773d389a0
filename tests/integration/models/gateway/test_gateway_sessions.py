"""Sessions of the gateway over real HTTP: who may ask, what is recorded, what limits and failures do."""

from __future__ import annotations

import itertools
import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.engine import EngineCall, EngineReply, FunctionEngine, read_completion
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.gateway.session_summary import SessionLimits
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.models.served import Served
from rollout_tasks.trajectories.call_reader import read_calls
from rollout_tasks.trajectories.calls import CallWriter
from tests.integration.models.gateway.upstream import ANSWER, CHAT, KEY, USER, Agent, Answer, Upstream

Open = Callable[..., Agent]
MESSAGES = {"model": "asked", "max_tokens": 5, "messages": [USER]}
RESPONSES = {"model": "asked", "input": "6 * 7?"}
ADDRESSES = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}


def test_what_is_sent_is_what_is_recorded(gateway: Gateway, engine: Any, upstream: Upstream, tmp_path: Path) -> None:
    picture = f"data:image/png;base64,{b64encode(b'a picture').decode()}"
    shown = {
        "role": "user",
        "content": [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": picture}}],
    }
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    asked = engine(temperature=0.5, extra_body={"top_k": 3})
    with CallWriter(tmp_path, {}) as writer, gateway.open("run/item%2F1/0/1", asked, writer) as session:
        client = openai.OpenAI(base_url=session.base_url, api_key=session.token, max_retries=0)
        first = client.chat.completions.create(model="asked", messages=[shown], tools=tools, temperature=1)  # type: ignore[list-item]
        history: Any = [shown, {"role": "assistant", "content": "42"}, USER]
        client.chat.completions.create(model="asked", messages=history, tools=tools)

    assert first.choices[0].message.content == "42"
    record = read_calls(tmp_path)
    assert [list(call.messages) for call in record.calls] == [body["messages"] for _, body in upstream.requests]
    headers, body = upstream.requests[0]
    assert body == {"model": "policy", "messages": [shown], "tools": tools, "temperature": 0.5, "top_k": 3}
    assert (headers["x-session-id"], headers["authorization"]) == ("run/item%2F1/0/1", f"Bearer {KEY}")
    call = record.calls[0]
    assert (call.number, call.dialect, call.asked_model, call.model) == (1, "chat", "asked", "policy-1")
    assert (call.outcome, call.reply, list(call.tools)) == ("served", {"role": "assistant", "content": "42"}, tools)
    assert call.sampling == {"model": "policy", "temperature": 0.5, "top_k": 3}
    assert (call.usage.prompt_tokens, call.usage.completion_tokens, call.usage.requests) == (7, 3, 1)
    assert call.served == Served()  # only a pool has replicas
    assert len(record.pictures[1]) == 1
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in everything
    assert session.token.encode() not in everything


def test_the_scripted_model_is_played_through_with_its_tokens(gateway: Gateway, tmp_path: Path) -> None:
    examples = Path(__file__).resolve().parents[4] / "examples" / "items.jsonl"
    extra = {"logprobs": True, "return_token_ids": True}
    with ScriptedModelProcess(examples) as model, CallWriter(tmp_path, {}) as writer:
        engine = EndpointEngine(ModelConfig(name="scripted", base_url=model.url, extra_body=extra))
        with gateway.open("run/sailing-crew/0/1", engine, writer) as session:
            client = openai.OpenAI(base_url=session.base_url, api_key=session.token, max_retries=0)
            messages: Any = [{"role": "user", "content": "?"}]
            for turn in range(3):
                if turn == 1:  # one of them as a stream
                    with client.chat.completions.stream(model="m", messages=messages) as stream:
                        message = stream.get_final_completion().choices[0].message
                else:
                    message = client.chat.completions.create(model="m", messages=messages).choices[0].message
                messages.append({"role": "assistant", "content": message.content})
                for one in message.tool_calls or ():
                    function = {"name": one.function.name, "arguments": one.function.arguments}
                    messages[-1].setdefault("tool_calls", []).append(
                        {"id": one.id, "type": "function", "function": function}
                    )
                messages += [
                    {"role": "tool", "tool_call_id": one.id, "content": "done"} for one in message.tool_calls or ()
                ]

    assert messages[-1]["content"].endswith("495.")
    calls = read_calls(tmp_path).calls
    assert [call.number for call in calls] == [1, 2, 3]
    for call in calls:
        assert len(call.sampled.output_ids) == len(call.sampled.logprobs) == call.usage.completion_tokens
        assert len(call.sampled.prompt_ids) == call.usage.prompt_tokens
    for before, after in itertools.pairwise(calls):
        begun = before.sampled.prompt_ids + before.sampled.output_ids
        assert after.sampled.prompt_ids[: len(begun)] == begun


def test_responses_go_on_by_their_ids(agent: Open, upstream: Upstream) -> None:
    one = agent()
    client = openai.OpenAI(base_url=one.handle.base_url, api_key=one.handle.token, max_retries=0)

    first = client.responses.create(model="asked", input="a", instructions="i")
    with client.responses.stream(model="asked", input="b", previous_response_id=first.id) as stream:
        second = stream.get_final_response()

    assert first.output_text == second.output_text == "42"
    said = [(message["role"], message["content"]) for message in upstream.requests[1][1]["messages"]]
    assert said == [("user", "a"), ("assistant", "42"), ("user", "b")]
    assert not one.summary.limit
    other = agent()
    answer = other.post("/v1/responses", {**RESPONSES, "previous_response_id": first.id})
    assert answer.status_code == 404


def test_a_computer_is_used_over_responses(agent: Open, upstream: Upstream) -> None:
    """The requests of OSWorld's agent for this API, with the official client."""
    written = '{"action":{"type":"click","button":"left","x":10,"y":20}}'
    call = {"id": "c1", "type": "function", "function": {"name": "computer", "arguments": written}}
    message = {"role": "assistant", "content": None, "reasoning_content": "I click.", "tool_calls": [call]}
    body = {**ANSWER, "choices": [{"finish_reason": "tool_calls", "message": message}]}
    upstream.will(Answer(body=json.dumps(body).encode()))
    one = agent()
    client = openai.OpenAI(base_url=one.handle.base_url, api_key=one.handle.token, max_retries=0)
    options: Any = {
        "model": "computer-use-preview",
        "tools": [{"type": "computer_use_preview", "display_width": 64, "display_height": 48, "environment": "linux"}],
        "reasoning": {"generate_summary": "concise"},
        "truncation": "auto",
    }

    asked: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Click OK."}]}]
    response = client.responses.create(input=asked, **options)
    reasoning, acted = response.output
    assert reasoning.summary[0].text == "I click."  # type: ignore[union-attr]
    assert acted.type == "computer_call"
    assert (acted.action.type, acted.action.x, acted.action.y) == ("click", 10, 20)  # type: ignore[union-attr]
    url = f"data:image/png;base64,{b64encode(b'a picture').decode()}"
    shown = {
        "type": "computer_call_output",
        "call_id": acted.call_id,
        "output": {"type": "input_image", "image_url": url},
    }
    known = [item.model_dump() for item in response.output]
    for given in ({"input": [shown], "previous_response_id": response.id}, {"input": [*asked, *known, shown]}):
        assert client.responses.create(**options, **given).output_text == "42"

    sent = [body["messages"] for _, body in upstream.requests]
    assert sent[1] == sent[2]
    assert sent[1][:2] == [{"role": "user", "content": "Click OK."}, message]
    assert sent[1][3] == {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def test_messages_are_answered_whole_and_as_a_stream(agent: Open, upstream: Upstream) -> None:
    one = agent()

    whole = one.post("/v1/messages", MESSAGES)
    stream = one.post("/v1/messages?beta=true", {**MESSAGES, "stream": True})

    assert whole.json()["content"] == [{"type": "text", "text": "42"}]
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert "event: message_stop" in stream.text
    assert upstream.requests[0][1] == {"model": "policy", "max_completion_tokens": 5, "messages": [USER]}
    assert [call.dialect for call in one.recorder.calls] == ["messages", "messages"]


def test_anthropics_client_is_answered(agent: Open) -> None:
    anthropic = pytest.importorskip("anthropic")
    one = agent()
    client = anthropic.Anthropic(base_url=one.handle.messages_url, api_key=one.handle.token, max_retries=0)

    assert client.messages.create(**MESSAGES).content[0].text == "42"
    with client.messages.stream(**MESSAGES) as stream:
        assert stream.get_final_text() == "42"


def test_models_reward_and_trace(agent: Open) -> None:
    one = agent()
    one.chat()
    one.chat(n=2)

    headers = {"Authorization": f"Bearer {one.handle.token}"}
    models = one.client.get(f"{one.handle.base_url}/models", headers=headers).json()
    assert [model["id"] for model in models["data"]] == ["policy"]
    assert one.post("/reward", {"reward": 0.5}).json() == {"reward": 0.5}
    for wrong in ({}, {"reward": "1"}, {"reward": True}, {"reward": None}):
        assert one.post("/reward", wrong).status_code == 400
    trace = one.trace()
    assert [(call["number"], call["outcome"], call["prompt_tokens"]) for call in trace["calls"]] == [(1, "served", 7)]
    assert trace["refusals"][0] == "n must be 1: each sampled reply is a call of its own here"
    assert (trace["reward"], trace["failure_class"]) == (0.5, None)
    summary = one.handle.close()
    assert (summary.calls, summary.refused, summary.reward, summary.usage.total_tokens) == (1, 5, 0.5, 10)


def test_a_reward_that_waits_for_a_disk_keeps_no_other_session_waiting(agent: Open) -> None:
    one, other = agent(), agent()
    written = threading.Event()
    one.handle.when_rewarded(lambda: written.wait(30))
    with ThreadPoolExecutor(1) as pool:
        rewarding = pool.submit(one.post, "/reward", {"reward": 0.5})
        try:
            while one.handle.summary().reward is None and not rewarding.done():
                time.sleep(0.01)
            assert other.post("/reward", {"reward": 1}).json() == {"reward": 1.0}
            assert not rewarding.done()
        finally:
            written.set()
        assert rewarding.result(30).json() == {"reward": 0.5}


@pytest.mark.parametrize("address", ADDRESSES)
def test_only_a_sessions_own_token_opens_it(agent: Open, upstream: Upstream, address: str) -> None:
    one, other = agent(), agent()
    statuses = {}
    for what, token in {"short": "x", "wrong": "x" * 43, "another's": other.handle.token, "umlaut": "\u00e4"}.items():
        headers = {"Authorization": f"Bearer {token}".encode()}
        url = f"{one.handle.messages_url}{address}"
        answer = one.client.post(url, headers=headers, json=ADDRESSES[address])  # type: ignore[arg-type]
        statuses[what] = answer.status_code
        error = answer.json()["error"]
        assert error["type"] == "authentication_error"
        assert one.handle.token not in answer.text
    assert set(statuses.values()) == {401}
    assert one.client.get(f"{one.handle.messages_url}/trace").status_code == 401
    assert not upstream.requests


@pytest.mark.parametrize("address", ADDRESSES)
def test_unknown_and_closed_sessions(agent: Open, gateway: Gateway, address: str) -> None:
    one = agent()
    one.handle.close()

    closed = one.post(address, ADDRESSES[address])
    closed_wrong = one.post(address, ADDRESSES[address], token="x")
    unknown = one.client.post(f"{gateway.url}/sessions/none{address}", json={})
    elsewhere = one.client.post(f"{gateway.url}/v1/chat/completions", json={})
    method = one.client.get(f"{agent().handle.messages_url}{address}")

    assert [answer.status_code for answer in (closed, closed_wrong, unknown, elsewhere)] == [409, 401, 404, 404]
    assert method.status_code == 401
    assert "is closed" in closed.json()["error"]["message"]
    assert ("type" in closed.json()) == (address == "/v1/messages")


LIMITS: dict[str, tuple[SessionLimits, int, str]] = {
    "calls": (SessionLimits(calls=2), 2, "has used all its 2 calls"),
    "tokens": (SessionLimits(tokens=15), 2, "has used 20 tokens, and may use 15"),
}


@pytest.mark.parametrize(("limits", "served", "said"), LIMITS.values(), ids=LIMITS.keys())
def test_a_session_that_used_up_its_limit_is_refused(
    agent: Open, upstream: Upstream, limits: SessionLimits, served: int, said: str
) -> None:
    one = agent(limits)

    answers = [one.chat() for _ in range(served + 2)]

    assert [answer.status_code for answer in answers] == [200] * served + [429] * 2
    assert said in answers[-1].json()["error"]["message"]
    assert answers[-1].headers["x-should-retry"] == "false"
    assert len(upstream.requests) == one.summary.calls == served
    assert one.summary.failure_class is None
    assert said in one.summary.limit


@pytest.mark.parametrize("name", ["", "a\nb", "\u00e4", "x" * 1001])
def test_ids_that_cannot_be_sent(gateway: Gateway, engine: Any, name: str) -> None:
    with pytest.raises(UserError, match="must be printable ASCII"):
        gateway.open(name, engine(), Agent)  # type: ignore[arg-type]


def test_a_sessions_id_is_its_own(agent: Open, gateway: Gateway, engine: Any) -> None:
    agent()
    with pytest.raises(UserError, match="there is a session 'run/item%2F0/0/1' already"):
        gateway.open("run/item%2F0/0/1", engine(), Agent)  # type: ignore[arg-type]


def test_many_sessions_at_once_see_their_own_only(agent: Open, gateway: Gateway) -> None:
    async def echo(call: EngineCall) -> EngineReply:
        choice = {
            "finish_reason": "stop",
            "message": {"content": f"{call.session_id} {call.request['messages'][0]['content']}"},
        }
        return read_completion(json.dumps({**ANSWER, "choices": [choice]}), Usage(), Served())

    engine = FunctionEngine("echo", echo)
    agents = [agent(own=engine) for _ in range(8)]
    problems: list[str] = []

    def ask(one: Agent, place: int) -> None:
        with httpx.Client(timeout=20) as client:
            for turn in range(10):
                body = {"model": "m", "messages": [{"role": "user", "content": f"secret {place} {turn}"}]}
                headers = {"Authorization": f"Bearer {one.handle.token}"}
                said = client.post(f"{one.handle.base_url}/chat/completions", json=body, headers=headers).json()
                if said["choices"][0]["message"]["content"] != f"run/item%2F{place}/0/1 secret {place} {turn}":
                    problems.append(str(said))

    threads = [threading.Thread(target=ask, args=(one, place)) for place, one in enumerate(agents)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not problems
    for place, one in enumerate(agents):
        asked = [call.messages[0]["content"] for call in one.recorder.calls]
        assert asked == [f"secret {place} {turn}" for turn in range(10)]


def test_a_session_has_the_key_that_it_is_given(gateway: Gateway, engine: Any, tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}) as writer, gateway.open("s", engine(), writer, token="given") as session:
        asked = [
            httpx.get(f"{session.base_url}/models", headers={"Authorization": f"Bearer {key}"}).status_code
            for key in ("given", "another")
        ]

    assert (session.token, asked) == ("given", [200, 401])
