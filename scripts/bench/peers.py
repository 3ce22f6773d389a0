"""What the pipeline is measured against: a bare Celery chord, and a bare loop of processes around the OpenAI client.

Neither keeps anything: no verdicts, no trajectories, no claims, no retries beyond the libraries' own. The chord's application has
the settings of a careful Celery user: late acknowledgement, one message at a time, JSON, no results of header tasks, task events.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from typing import Any

import openai
import redis
from celery import Celery, chord

from benchmark.items import Item
from rollout_tasks.agents import prompts
from rollout_tasks.environments.arithmetic import ArithmeticRefused, calculate
from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.math import CALCULATOR, INSTRUCTIONS
from rollout_tasks.models.client import SESSION_HEADER
from rollout_tasks.models.session_ids import session_id

CALLBACK_KEY = "bench:called-back"

app = Celery("peers", broker=os.environ.get("REDIS_URL"), backend=os.environ.get("REDIS_URL"))
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_track_started=True,
    worker_send_task_events=True,
    task_send_sent_event=True,
)


@app.task(ignore_result=True)  # type: ignore[untyped-decorator]
def nothing(_number: int) -> None:
    """The header's task."""


@app.task(ignore_result=True)  # type: ignore[untyped-decorator]
def call_back(_results: object) -> None:
    """The body: says when it ran."""
    redis.Redis.from_url(os.environ["REDIS_URL"]).set(CALLBACK_KEY, time.time())


def connect_app() -> None:
    """Opens the connections that sending takes."""
    nothing.apply_async((0,), queue="bench:nobody")
    redis.Redis.from_url(os.environ["REDIS_URL"]).delete("bench:nobody")


def send_chord(tasks: int) -> tuple[float, float]:
    """Sends a chord of so many empty tasks; returns when that began and when it was done (seconds since the epoch)."""
    began = time.time()
    chord([nothing.s(number) for number in range(tasks)], call_back.s()).apply_async()
    return began, time.time()


def converse_all(items: list[Item], url: str, processes: int) -> list[float]:
    """Has one conversation for each item, several at a time; returns when each ended (seconds since the epoch)."""
    with multiprocessing.get_context("fork").Pool(processes, _connect, (url,)) as pool:
        return list(pool.imap_unordered(_converse, items))


_client: openai.OpenAI


def _connect(url: str) -> None:
    global _client
    _client = openai.OpenAI(api_key="none", base_url=url)


def _converse(item: Item) -> float:
    messages: list[Any] = [
        {"role": "system", "content": prompts.system_prompt(INSTRUCTIONS, [CALCULATOR])},
        {"role": "user", "content": prompts.task_content(item.question, Observation())},
    ]
    tools: Any = [CALCULATOR.as_openai()]
    headers = {SESSION_HEADER: session_id("bench", item.id, 0, 1)}
    while True:
        reply = _client.chat.completions.create(model="scripted", messages=messages, tools=tools, extra_headers=headers)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return time.time()
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)  # type: ignore[union-attr]
            lines = [f"{expression} = {_value(expression)}" for expression in arguments["expressions"]]
            content = json.dumps({"status": "success", "response": "\n".join(lines)})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def _value(expression: str) -> str:
    try:
        return calculate(expression)
    except ArithmeticRefused as refusal:
        return f"error: {refusal}"
