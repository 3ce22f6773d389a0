"""A real HTTP endpoint that plays replies in order and keeps the requests, and a room whose every push is seen anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmark.items import Item
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.tool_calling import ToolCallingAgent
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Environment, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.client import open_model
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request


class ChatEndpoint:
    """Plays replies in order, each the choice of a Chat Completions response, and keeps the bodies of the requests."""

    def __init__(self) -> None:
        self.choices: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.completion_tokens = 5
        self.fails = False
        self.when_asked: Callable[[], object] = lambda: None
        self._server = AnswerServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"

    def will(self, *choices: dict[str, Any]) -> None:
        """From now on it plays these, and has not been asked yet."""
        self.choices, self.bodies = list(choices), []

    def close(self) -> None:
        self._server.close()
        assert self._server.mistakes == []

    def _answer(self, request: Request) -> Answer:
        if self.fails:
            return Answer(b"{}", status=503)
        if not request.body:
            return Answer(json.dumps({"object": "list", "data": [{"id": "policy"}]}).encode())
        self.bodies.append(json.loads(request.body))
        self.when_asked()
        if "status" in self.choices[0]:  # stays: it is asked again
            return Answer(b"{}", status=self.choices[0]["status"], retry_after=self.choices[0].get("retry_after"))
        if "error" in self.choices[0]:
            return Answer(json.dumps(self.choices.pop(0)).encode(), status=400)
        usage = {"prompt_tokens": 10, "completion_tokens": self.completion_tokens}
        return Answer(json.dumps({"model": "m-1", "choices": [self.choices.pop(0)], "usage": usage}).encode())


OVERFLOW = {"error": {"code": "context_length_exceeded", "message": "The maximum context length is 49152 tokens."}}
"""In the place of a choice: the endpoint refuses the prompt."""


def said(text: str | None, *, finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {"finish_reason": finish_reason, "message": {"role": "assistant", "content": text, **more}}


def pushes(number: int, *, turn: int, finish_reason: str = "tool_calls", **more: Any) -> dict[str, Any]:
    calls = [
        {"id": f"c{turn}-{place}", "type": "function", "function": {"name": "push", "arguments": "{}"}}
        for place in range(number)
    ]
    return said(None, finish_reason=finish_reason, tool_calls=calls, **more)


class Gallery(Environment):
    """Shows so many new pictures at the start and after every push, each unlike all others."""

    needs_vm: ClassVar[bool] = False
    queue: ClassVar[str] = "rollout.light"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, pictures: int) -> None:
        self._pictures = pictures
        self.shown: list[bytes] = []

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        return "Push."

    def tools(self) -> list[Tool]:
        return [Tool("push", "Pushes.", {"type": "object"})]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        return self.look()

    def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
        return ToolResult("success", "pushed", self.look())

    def look(self) -> Observation:
        first = len(self.shown)
        self.shown += [b"\x89PNG %d" % number for number in range(first, first + self._pictures)]
        return Observation(f"[door] seen {len(self.shown)}", tuple(self.shown[first:]))


def play(
    endpoint: ChatEndpoint,
    world: Gallery,
    directory: Path | None = None,
    *,
    limits: Limits | None = None,
    **model: Any,
) -> Episode:
    """Plays one episode with the client that runs use.

    Args:
        endpoint: The model's.
        world: The environment.
        directory: Where the trajectory goes; None: it is not written.
        limits: The attempt's.
        **model: Options of the model.
    """
    config = RunConfig(model=ModelConfig(base_url=endpoint.url, name="m", max_retries=1, **model))
    trajectory = TrajectoryWriter(directory or Path(), enabled=directory is not None)
    trajectory.start({})
    item = Item(id="1", question="Open the door.")
    asked = open_model(config.model, session_id="run/1/0/1", api_key="none")
    try:
        return ToolCallingAgent(config).run(item, world, world.reset(item), asked, limits or Limits(), trajectory)
    finally:
        trajectory.finish()
