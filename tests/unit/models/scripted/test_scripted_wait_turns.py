"""A scripted turn that waits until it sees what it needs."""

import json

import pytest

from rollout_tasks.agents.prompts import result_content, task_content
from rollout_tasks.environments.base import Observation, ToolResult
from rollout_tasks.models.scripted.sessions import turn_of
from rollout_tasks.models.scripted.wait_turns import PAUSES, is_seen, waiting_message

TOOLS = [{"type": "function", "function": {"name": "desktop_control"}}]


def task(state):
    return {"role": "user", "content": task_content("Open the Calculator.", Observation(state, (b"png",)))}


def result(state, said=""):
    return {
        "role": "tool",
        "content": result_content(ToolResult("success", said, Observation(state)), with_pictures=False),
    }


PICTURES = {"role": "user", "content": [{"type": "text", "text": "Screenshot after desktop_control:"}]}
ASSISTANT = {"role": "assistant", "content": "Well.", "tool_calls": [{"id": "call_0_0"}]}


@pytest.mark.parametrize(
    ("messages", "seen"),
    [
        ([task("[frame] Calculator")], True),
        ([task("[frame] Desktop")], False),
        ([task("[frame] Calculator"), ASSISTANT, result("[frame] Desktop"), PICTURES], False),
        ([task("[frame] Desktop"), ASSISTANT, result("[frame] Calculator"), PICTURES], True),
        ([task("[frame] Desktop"), ASSISTANT, result("[frame] Calculator"), result("[frame] Desktop")], False),
        ([task("[frame] Desktop"), ASSISTANT, result("[frame] Desktop", "typed Calculator")], False),
    ],
    ids=[
        "at first",
        "not yet, though asked for",
        "gone again",
        "after a call",
        "gone with the last call",
        "only typed",
    ],
)
def test_what_counts_is_the_last_observation(messages, seen):
    assert is_seen("Calculator", messages) is seen


def test_waiting_takes_longer_and_longer_and_gives_up_with_a_sentence():
    messages, pauses = [task("")], []
    while isinstance(message := waiting_message("Save As", {"messages": messages, "tools": TOOLS}, 3), dict):
        [call] = message["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        pauses.append(arguments.pop("pause"))
        assert (call["function"]["name"], arguments) == ("desktop_control", {"action": "wait"})
        messages += [message, result("")]

    assert tuple(pauses) == PAUSES
    assert message == "The scripted model waited 64 s to see 'Save As' before turn 4, and did not."


def test_what_is_there_without_a_place_is_said():
    """Trees beside pictures have no coordinates."""
    message = {"role": "assistant", "tool_calls": [{"id": "call_wait_3_0"}]}
    messages = [task(""), *[each for _ in PAUSES for each in (message, result("[push-button] Save As"))]]

    said = waiting_message("[push-button] Save As", {"messages": messages, "tools": TOOLS}, 3)

    assert said.endswith(
        "and did not. It is there, but without coordinates to point at: --observation-type a11y_tree has them."
    )


def test_turns_spent_waiting_are_not_the_scripts_and_a_turn_of_it_starts_the_count_anew():
    wait = waiting_message("a", {"messages": [task("")], "tools": TOOLS}, 0)
    messages = [task(""), wait, result(""), ASSISTANT, result("")]

    again = waiting_message("b", {"messages": messages, "tools": TOOLS}, 1)

    assert turn_of(messages) == 1
    assert again["tool_calls"][0]["id"] == "call_wait_1_0"


@pytest.mark.parametrize(
    "tools", [None, [], [{"type": "function", "function": {"name": "calculator"}}], "junk", [None]]
)
def test_without_a_tool_to_wait_with_it_says_so(tools):
    said = waiting_message("Calculator", {"messages": [task("")], "tools": tools}, 0)

    assert said == "The scripted model cannot wait to see 'Calculator' before turn 1: there is no tool desktop_control."
