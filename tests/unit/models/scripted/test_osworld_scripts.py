"""The scripts for real OSWorld tasks can be played: they parse, and call tools as the desktop's own action space has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from rollout_tasks.environments.base import ToolCall
from rollout_tasks.environments.osworld.action_spaces import SPACES
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.models.scripted.scripts import Turns
from tests.conftest import REPOSITORY

SCRIPTS = sorted((REPOSITORY / "tests" / "acceptance" / "osworld_scripts").glob("*-*.json"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem[:8])
def test_a_script_acts_and_ends(script: Path) -> None:
    turns = TypeAdapter(Turns).validate_python(json.loads(script.read_text()))
    calls = [ToolCall("1", call.name, _placed(call.arguments)) for turn in turns for call in turn.tool_calls]

    plans = [SPACES["computer_13"].plan(call, View((1920, 1080))) for call in calls]

    assert [plan.ends for plan in plans] == [None] * (len(plans) - 1) + ["done"]


def _placed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As if what the script points at were in the corner."""
    others = {name: value for name, value in arguments.items() if name != "at"}
    return {"x": 1, "y": 1, **others} if "at" in arguments else others


def test_the_tasks_of_the_scripts_are_real(shared_data: Path) -> None:
    listed = json.loads((shared_data / "osworld" / "test_offline.json").read_text())

    assert {path.stem for path in SCRIPTS} <= {task for tasks in listed.values() for task in tasks}
