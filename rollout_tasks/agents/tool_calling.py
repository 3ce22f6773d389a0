"""The agent for models with native tool calls: it asks, executes every call in order, answers each, and asks again.

Messages are never edited afterwards. The history (`history`) decides what is sent of them; each reply's record says what was
left out, so that every prompt can be rebuilt (`Trajectory.prompt`).
"""

from __future__ import annotations

import time
from typing import ClassVar, Literal

from benchmark.items import Item
from rollout_tasks.agents import prompts
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.agents.history import HistoryPolicy, MessageHistory
from rollout_tasks.agents.limits import Budget, UnusableTurns, ask, check_refusal, turns_used, unanswered
from rollout_tasks.agents.thinking import after_thinking
from rollout_tasks.agents.tool_calls import ToolCallReader, UnusableCallError
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, ToolCall, ToolResult, World
from rollout_tasks.models.base import Message, Model, RawToolCall, Reply
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.trajectories.writer import TrajectoryWriter


class ToolCallingAgent(Agent):
    """Chat Completions with tools."""

    needs_model: ClassVar[bool] = True

    def __init__(self, config: RunConfig) -> None:
        """Stores the options: where pictures go and how many stay, and the system prompt."""
        self._config = config

    def run(
        self,
        item: Item,
        environment: World,
        observation: Observation,
        model: Model,
        limits: Limits,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """See `Agent`."""
        return self._play(item, environment, observation, model, Budget(limits), trajectory)

    def _play(
        self,
        item: Item,
        environment: World,
        observation: Observation,
        model: Model,
        budget: Budget,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """As `run`, with limits that further models may share."""
        episode = _ToolEpisode(environment, model, trajectory, self._config, budget)
        episode.begin(item, observation)
        return episode.play()


class _ToolEpisode:
    """One episode: its messages, and the loop that adds to them."""

    def __init__(
        self,
        environment: World,
        model: Model,
        trajectory: TrajectoryWriter,
        config: RunConfig,
        budget: Budget,
    ) -> None:
        self._environment = environment
        self._model = model
        self._trajectory = trajectory
        self._images_in = config.model.images_in
        self._model_config = config.model
        self._system_prompt = config.system_prompt
        self._tools = environment.tools()
        self._offered = [tool.as_openai() for tool in self._tools]
        self._calls = ToolCallReader(self._tools)
        self._history = MessageHistory(HistoryPolicy.of(config.model))
        self._budget = budget
        self._reply: Reply | None = None
        self._unusable = UnusableTurns()

    def begin(self, item: Item, observation: Observation) -> None:
        """Adds the system prompt and the task."""
        instructions = self._environment.instructions(item)
        self._say({"role": "system", "content": prompts.system_prompt(instructions, self._tools, self._system_prompt)})
        self._say({"role": "user", "content": prompts.task_content(item.question, observation)})

    def play(self) -> Episode:
        """Plays turns until there is an answer or a limit is reached."""
        budget = self._budget
        while budget.turn < budget.limits.max_turns:
            budget.check_tokens()
            budget.turn += 1
            reply = self._ask()
            text = (after_thinking(reply.text) or "").strip()
            if reply.tool_calls:
                ending = self._execute_all(reply)
                if ending is not None:
                    return Episode(text, ending, budget.turn, budget.usage)
            elif problem := unanswered(reply, self._model_config):
                self._say({"role": "user", "content": prompts.CUT_OFF_NOTE if reply.cut_off else prompts.FILTERED_NOTE})
                self._unusable.add(problem)
            elif text:
                return Episode(text, "answer", budget.turn, budget.usage)
            else:
                self._say({"role": "user", "content": prompts.ON_EMPTY_REPLY})
                self._unusable.add("an empty reply")
        raise turns_used(budget.limits)

    def _ask(self) -> Reply:
        prompt, left_out = self._history.prompt()
        reply = self._reply = ask(self._model, prompt, self._offered, self._reply, self._model_config)
        self._budget.usage += reply.usage
        self._say(reply.message, reply, left_out)
        check_refusal(reply)
        return reply

    def _execute_all(self, reply: Reply) -> Literal["done", "fail"] | None:
        """Executes the turn's calls in order and answers every one; returns how the episode ended, if it did."""
        ending: Literal["done", "fail"] | None = None
        problems: list[str] = []
        shown: list[tuple[str, ToolResult]] = []
        for raw in reply.tool_calls:
            if ending is not None:
                self._answer(raw, ToolResult("failed", prompts.NOT_EXECUTED))
                continue
            try:
                cut_off = reply.cut_off and raw is reply.tool_calls[-1]  # the calls before it are whole
                call = self._calls.read(raw, cut_off=cut_off, filtered=reply.filtered)
            except UnusableCallError as error:
                problems.append(str(error))
                self._answer(raw, ToolResult("failed", str(error)))
                continue
            result = self._execute(call)
            ending = result.ends_episode
            self._answer(raw, result)
            shown.append((call.name, result))
        if self._images_in == "user" and (content := prompts.pictures_content(shown)):
            self._say({"role": "user", "content": content})
        if shown:
            self._unusable.reset()
        else:
            self._unusable.add(problems[-1])
        return ending

    def _execute(self, call: ToolCall) -> ToolResult:
        started = time.monotonic()
        result = self._environment.execute(call)
        self._trajectory.step(turn=self._budget.turn, call=call, result=result, seconds=time.monotonic() - started)
        return result

    def _answer(self, raw: RawToolCall, result: ToolResult) -> None:
        content = prompts.result_content(result, with_pictures=self._images_in == "tool")
        self._say({"role": "tool", "tool_call_id": raw.id, "content": content})

    def _say(self, message: Message, reply: Reply | None = None, left_out: LeftOut | None = None) -> None:
        self._history.add(message, reply)
        tools = self._offered if reply else ()
        self._trajectory.message(message, turn=self._budget.turn or None, reply=reply, left_out=left_out, tools=tools)
