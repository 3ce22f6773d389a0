"""Each official agent beside the reader of its protocol, and replies in each protocol for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from rollout_tasks.agents.profiles import anthropic_computer, qwen, responses_computer, thought_action_code, ui_tars
from rollout_tasks.agents.profiles.actions import CallUser
from rollout_tasks.agents.profiles.coordinates import Coordinates, Rounding
from rollout_tasks.agents.profiles.pyautogui_code import tool_call
from rollout_tasks.agents.profiles.reply import Parsed
from tests.unit.agents.profiles import official_agents
from tests.unit.agents.profiles.recorded_pyautogui import Event, recorded

SCREEN = (1920, 1080)
RESIZED = (1932, 1092)


def coordinates(picture: tuple[float, float], rounding: Rounding = Rounding.DOWN) -> Coordinates:
    return Coordinates(SCREEN, picture, rounding)


Agent = tuple[Callable[[], Callable[[Any], list[str]]], Callable[[Any], Parsed]]
POINTS_GRID = coordinates((1000, 1000), Rounding.THOUSANDTHS_DOWN)
AGENTS: dict[str, Agent] = {
    "ui_tars_1": (official_agents.ui_tars_1, lambda reply: ui_tars.parse(reply, POINTS_GRID)),
    "ui_tars_15": (
        official_agents.ui_tars_15,
        lambda reply: ui_tars.parse(reply, coordinates(RESIZED, Rounding.THOUSANDTHS_DOWN)),
    ),
    "ui_tars_15_points": (official_agents.ui_tars_15_points, lambda reply: ui_tars.parse(reply, POINTS_GRID)),
    "qwen_3": (official_agents.qwen_3, lambda reply: qwen.parse(reply, coordinates(qwen.GRID))),
    "qwen_25": (official_agents.qwen_25, lambda reply: qwen.parse(reply, coordinates(RESIZED))),
    "open_cua": (
        lambda: official_agents.open_cua("relative"),
        lambda reply: thought_action_code.parse(reply, coordinates((1, 1), Rounding.NEAREST)),
    ),
    "open_cua_resized": (
        lambda: official_agents.open_cua("qwen25"),
        lambda reply: thought_action_code.parse(reply, coordinates(RESIZED, Rounding.SHARE_DOWN)),
    ),
    "open_cua_absolute": (
        lambda: official_agents.open_cua("absolute"),
        lambda reply: thought_action_code.parse(reply, coordinates(SCREEN)),
    ),
    "claude": (official_agents.claude, lambda reply: anthropic_computer.parse(reply, coordinates((1280, 720)))),
    "responses": (official_agents.responses, lambda reply: responses_computer.parse(reply, coordinates(SCREEN))),
}


@cache
def official(agent: str) -> Callable[[Any], list[str]]:
    return AGENTS[agent][0]()


def theirs(agent: str, reply: Any) -> list[Event]:
    return recorded(*official(agent)(reply))


def ours(agent: str, reply: Any) -> list[Event]:
    actions = AGENTS[agent][1](reply).actions
    calls = [("CALL_USER" if isinstance(action, CallUser) else tool_call(action, "1")) for action in actions]  # type: ignore[arg-type]
    scripts = [
        call if isinstance(call, str) else call.arguments.get("script") or str(call.arguments["action"]).upper()
        for call in calls
    ]
    return recorded(*scripts)


def without_waits(events: list[Event]) -> list[Event]:
    """Leaves out waits beside other events: some official agents sleep in their scripts in place of waiting."""
    others = [event for event in events if event != ("WAIT",)]
    return events if len(others) == 1 else others


def action(written: str) -> str:
    return f"Thought: I see.\nAction: {written}"


def tool(**arguments: Any) -> str:
    return f"Action: Do it.\n<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


def function(**arguments: str) -> str:
    parameters = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"Action: Do it.\n<tool_call>\n<function=computer_use>\n{parameters}</function>\n</tool_call>"


def code(written: str) -> str:
    return f"## Thought:\nI see.\n\n## Action:\nDo it.\n\n## Code:\n```python\n{written}\n```"


def use(**arguments: Any) -> dict[str, Any]:
    return {
        "content": [{"type": "tool_use", "id": "a", "name": "computer", "input": arguments}],
        "stop_reason": "tool_use",
    }


def computer(**arguments: Any) -> dict[str, Any]:
    return {"output": [{"type": "computer_call", "call_id": "a", "action": arguments}]}


CLICK = '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [100, 200]}}'
