"""The action space of OSWorld's baselines: Python with pyautogui, run in the guest."""

from __future__ import annotations

from rollout_tasks.environments.base import Tool, ToolCall
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL, Plan, View, control, tool
from rollout_tasks.environments.osworld.guest_python import SPECIAL

SCRIPT = tool(
    "desktop_execute_python_script",
    "Runs a Python script on the computer. pyautogui and time are imported; coordinates are screen pixels. The script must"
    " not take screenshots: you see the screen after it has run. Returns what it prints.",
    {"script": {"type": "string", "minLength": 1}},
    ["script"],
)


def tools(view: View) -> list[Tool]:  # noqa: ARG001
    """Returns the tools."""
    return [SCRIPT, CONTROL]


def plan(call: ToolCall, view: View) -> Plan:  # noqa: ARG001
    """Returns what a call becomes. A script that is only WAIT, DONE or FAIL is that action, as in OSWorld."""
    if call.name == CONTROL.name:
        return control(call)
    script, pause = str(call.arguments["script"]), call.arguments.get("pause")
    word = script.strip()
    if word in SPECIAL:
        return control(ToolCall(call.id, CONTROL.name, {"action": word.lower(), "pause": pause}))
    return Plan(script, "script", pause, answers=True)
