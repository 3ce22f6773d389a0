"""The desktop examples: proper OSWorld tasks, each with a script that solves it and one that does not."""

import pytest

from benchmark.items import load_items
from rollout_tasks.agents.tool_calls import ToolCallReader
from rollout_tasks.environments.osworld.action_spaces import computer_13
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.environments.osworld.task import steps_of, task_config
from rollout_tasks.models.base import RawToolCall
from rollout_tasks.models.scripted.replies import assistant_message
from rollout_tasks.models.scripted.scripts import load_scripts
from tests.conftest import REPOSITORY

ITEMS = load_items(REPOSITORY / "examples" / "desktop").items
SCRIPTS = load_scripts(ITEMS)
VIEW = View((1920, 1080))


def test_there_are_a_dozen_over_several_programs_one_impossible_and_one_with_two_evaluators():
    functions = [item.metadata["evaluator"]["func"] for item in ITEMS]

    assert len(ITEMS) >= 12
    assert {"terminal", "editor", "calculator", "files", "settings"} == {item.domain for item in ITEMS}
    assert functions.count("infeasible") == 1
    assert [len(function) for function in functions if isinstance(function, list)] == [2]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_a_task_needs_nothing_from_the_internet(item):
    kinds = {step["type"] for step in steps_of(task_config(item))}

    assert kinds <= {"execute", "launch", "open"}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_its_two_scripts_differ_and_make_only_calls_that_a_desktop_takes(item):
    right, wrong = (SCRIPTS.find(item.id, index) for index in (0, 1))
    reader = ToolCallReader(computer_13.tools(VIEW))

    assert right != wrong
    for turns in (right, wrong):
        for number, turn in enumerate(turns):
            for call in assistant_message(turn, number)["tool_calls"]:
                raw = RawToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                assert computer_13.plan(reader.read(raw, cut_off=False), VIEW)
        assert turns[-1].tool_calls[-1].arguments["action"] in {"done", "fail"}
