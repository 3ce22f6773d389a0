from __future__ import annotations

import copy
import itertools
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from benchmark.items import Item
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.tool_calling import ToolCallingAgent
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Environment, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Message, RawToolCall, Reply, Usage
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter

ITEM = Item(id="1", question="Open the door.")
PNG = b"\x89PNG door"


class Room(Environment):
    """A door to open, and everything an observation can hold."""

    needs_vm: ClassVar[bool] = False
    queue: ClassVar[str] = "rollout.light"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, seen: Observation | None = None) -> None:
        self.seen = seen
        self.pushed: list[int] = []

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        return "Mind the {step}."

    def tools(self) -> list[Tool]:
        force = {"type": "object", "properties": {"force": {"type": "integer"}}, "required": ["force"]}
        return [Tool("push", "Pushes the door.", force), Tool("leave", "Ends it.", {"type": "object"})]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        return self.seen or Observation()

    def execute(self, call: ToolCall) -> ToolResult:
        if call.name == "leave":
            return ToolResult("success", "bye", ends_episode="done")
        self.pushed.append(call.arguments["force"])
        return ToolResult("success", f"pushed {call.arguments['force']}", self.seen)


class Script:
    """A model that plays replies in order and keeps what it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[list[Message]] = []
        self.whole: list[Message] = []
        """The conversation, with what followed the last reply."""

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:  # noqa: ARG002
        self.sent.append(copy.deepcopy(list(messages)))
        return self.replies.pop(0)


def reply(text: str, *calls: tuple[str, str], finish_reason: str = "stop") -> Reply:
    raw = tuple(RawToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls))
    message: Message = {"role": "assistant", "content": text, "tool_calls": [call.id for call in raw]}
    return Reply(message, text, raw, finish_reason, Usage(10, 5, 1, 0.1), "m-1")


def push(force: int) -> tuple[str, str]:
    return ("push", json.dumps({"force": force}))


def play(
    model: Script,
    room: Room | None = None,
    *,
    limits: Limits | None = None,
    images_in: Literal["user", "tool"] = "user",
    observation: Observation | None = None,
    directory: Path | None = None,
) -> Episode:
    trajectory = TrajectoryWriter(directory or Path(), enabled=directory is not None)
    trajectory.start({})
    model.whole = trajectory.messages
    agent = ToolCallingAgent(RunConfig(model=ModelConfig(images_in=images_in)))
    try:
        return agent.run(ITEM, room or Room(), observation or Observation(), model, limits or Limits(), trajectory)
    finally:
        trajectory.finish()


def answers(model: Script) -> list[dict[str, str]]:
    """Status and response of each tool message, in order."""
    return [json.loads(message["content"]) for message in model.whole if message["role"] == "tool"]


def test_a_text_without_a_call_is_the_answer() -> None:
    model = Script(reply("  It is open.\n"))

    assert play(model) == Episode("It is open.", "answer", 1, Usage(10, 5, 1, 0.1))
    system, user = model.sent[0]
    assert "Mind the {step}." in system["content"]
    assert "- push: Pushes the door.\n- leave: Ends it." in system["content"]
    assert user == {"role": "user", "content": "Open the door."}


def test_every_call_of_a_turn_is_executed_in_order_and_answered() -> None:
    model, room = Script(reply("", push(3), push(1), push(2)), reply("Done.")), Room()

    assert play(model, room).turns == 2
    assert room.pushed == [3, 1, 2]
    answered = [message for message in model.sent[1] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answered] == ["c0", "c1", "c2"]
    assert json.loads(answered[0]["content"]) == {"status": "success", "response": "pushed 3"}


def test_calls_after_the_end_are_answered_and_not_executed() -> None:
    model, room = Script(reply("I am off. ", push(1), ("leave", ""), push(2))), Room()

    assert play(model, room) == Episode("I am off.", "done", 1, Usage(10, 5, 1, 0.1))
    assert room.pushed == [1]
    assert answers(model)[2] == {
        "status": "failed",
        "response": "Not executed: an earlier call of this turn ended the episode.",
    }


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("pull", "{}"), "Tool 'pull' not found. Known: push, leave."),
        (("push", '{"force": 1'), "Validation failed for push: arguments are not JSON: Expecting ',' delimiter"),
        (("push", "{}"), "Validation failed for push: 'force' is a required property"),
        (("push", ""), "Validation failed for push: 'force' is a required property"),
        (("push", '{"force": "x"}'), "Validation failed for push: 'x' is not of type 'integer' (at $.force)"),
        (("push", '{"force": NaN}'), "Validation failed for push: arguments are not JSON: NaN is not a number"),
        (("push", "[1]"), "Validation failed for push: [1] is not of type 'object'"),
        (("push", "[" * 100_000), "Validation failed for push: arguments are not JSON"),
        (("push", f'{{"force": "{"x" * 9000}"}}'), "Validation failed for push: 'xxx"),
    ],
)
def test_a_wrong_call_is_explained_and_the_others_are_executed(call: tuple[str, str], said: str) -> None:
    model, room = Script(reply("", call, push(7)), reply("Done.")), Room()

    play(model, room)

    assert room.pushed == [7]
    assert answers(model)[0]["status"] == "failed"
    assert answers(model)[0]["response"].startswith(said)
    assert len(answers(model)[0]["response"]) < 700


def test_arguments_cut_off_at_the_token_limit_say_so() -> None:
    model = Script(reply("", ("push", '{"for'), finish_reason="length"), reply("Done."))

    play(model)

    assert answers(model)[0]["response"] == (
        "Validation failed for push: arguments are cut off: the reply reached its token limit"
    )


def test_unusable_turns_in_a_row_end_it_as_parse() -> None:
    model = Script(reply(""), reply("hm", ("pull", "")), reply(" "))

    with pytest.raises(RolloutFailure, match=r"3 turns in a row .* the last: an empty reply") as caught:
        play(model)

    assert caught.value.failure_class is FailureClass.PARSE
    assert model.sent[1][-1]["content"].startswith("Your reply was empty.")


def test_a_usable_turn_forgives_the_unusable_ones() -> None:
    model = Script(reply(""), reply(""), reply("", push(1)), reply(""), reply(""), reply("Done."))

    assert play(model).turns == 6


def test_all_turns_used() -> None:
    with pytest.raises(RolloutFailure, match="no answer after 2 turns") as caught:
        play(Script(*[reply("", push(1))] * 3), limits=Limits(max_turns=2))

    assert caught.value.failure_class is FailureClass.MAX_TURNS


def test_all_tokens_used() -> None:
    with pytest.raises(RolloutFailure, match="no answer after 2 turns and 30 tokens of 30") as caught:
        play(Script(*[reply("", push(1))] * 3), limits=Limits(max_tokens=30))

    assert caught.value.failure_class is FailureClass.MAX_TURNS


def test_an_answer_in_the_last_token_counts() -> None:
    assert play(Script(reply("", push(1)), reply("Done.")), limits=Limits(max_tokens=16)).answer == "Done."


def picture() -> dict[str, Any]:
    url = "data:image/png;base64," + b64encode(PNG).decode()
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def test_the_first_observation_stands_with_the_question() -> None:
    model = Script(reply("Done."))

    play(model, observation=Observation("[door] closed", (PNG,)))

    text = {"type": "text", "text": "Open the door.\n\nCurrent state:\n[door] closed"}
    assert model.sent[0][1]["content"] == [text, picture()]


def test_pictures_follow_the_results_in_one_user_message() -> None:
    model = Script(reply("", push(1), push(2)), reply("Done."))

    play(model, Room(Observation("[door] ajar", (PNG,))))

    *_, first, second, pictures = model.sent[1]
    head = '{"status": "success", "response": "pushed 1"}'
    assert first["content"] == head + "\n\nCurrent state:\n[door] ajar"
    assert second["role"] == "tool"
    label = {"type": "text", "text": "Screenshot after push:"}
    assert pictures == {"role": "user", "content": [label, picture(), label, picture()]}


def test_pictures_may_stand_in_the_tool_message() -> None:
    model = Script(reply("", push(1)), reply("Done."))

    play(model, Room(Observation("", (PNG,))), images_in="tool")

    message = model.sent[1][-1]
    assert message["role"] == "tool"
    assert message["content"] == [{"type": "text", "text": '{"status": "success", "response": "pushed 1"}'}, picture()]


def test_what_was_sent_is_never_edited() -> None:
    model = Script(reply("", push(1)), reply(""), reply("", push(2)), reply("Done."))

    play(model, Room(Observation("x", (PNG,))))

    assert len(model.sent) == 4
    for shorter, longer in itertools.pairwise(model.sent):
        assert longer[: len(shorter)] == shorter


def test_the_trajectory_holds_every_message_and_step(tmp_path: Path) -> None:
    model = Script(reply("", push(1), ("pull", "")), reply("Done."))

    play(model, Room(Observation("x", (PNG,))), directory=tmp_path)

    trajectory = read_trajectory(tmp_path)
    assert list(trajectory.messages) == list(model.whole)
    assert [(step.turn, step.name, step.response) for step in trajectory.steps] == [(1, "push", "pushed 1")]
    assert [(known.turn, known.served_by) for known in trajectory.replies] == [(1, "m-1"), (2, "m-1")]


def test_errors_of_the_environment_pass() -> None:
    class Broken(Room):
        def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
            raise RolloutFailure(FailureClass.VM_LOST, "gone")

    with pytest.raises(RolloutFailure, match="gone"):
        play(Script(reply("", push(1))), Broken())


def test_a_system_prompt_of_ones_own_stands_in_the_place_of_the_agents(tmp_path: Path) -> None:
    model = Script(reply("done"))
    config = RunConfig(system_prompt="Be brief {as always}. {instructions}\n{tools}")
    trajectory = TrajectoryWriter(tmp_path, enabled=False)
    trajectory.start({})
    ToolCallingAgent(config).run(ITEM, Room(), Observation(), model, Limits(), trajectory)

    system = model.sent[0][0]["content"]
    assert system == "Be brief {as always}. Mind the {step}.\n- push: Pushes the door.\n- leave: Ends it."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>6*7=42</think>\n\n42", "42"),
        ("6*7=42, or 43</think>42", "42"),
        ("The tag is <think>.", "The tag is <think>."),
    ],
)
def test_what_was_thought_in_the_text_is_no_part_of_the_answer(text: str, answer: str) -> None:
    assert play(Script(reply(text))).answer == answer


@pytest.mark.parametrize("text", ["<think>6*7=42</think>\n", "\n<think>6*7=42"])
def test_thinking_alone_is_no_answer(text: str) -> None:
    assert play(Script(reply(text), reply("42"))).answer == "42"
