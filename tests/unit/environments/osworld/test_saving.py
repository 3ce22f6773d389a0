"""Evaluators that press keys get a wait after them; no others do."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.environments.osworld.saving import awaiting_saves

KEYS = {
    "type": "execute",
    "parameters": {"command": ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's')"]},
}
SLEEP = {"type": "sleep", "parameters": {"seconds": 0.5}}


def task(*postconfig: dict[str, Any]) -> dict[str, Any]:
    return {"config": [], "evaluator": {"func": "f", "postconfig": list(postconfig)}}


def test_a_wait_comes_after_keys() -> None:
    given = task(KEYS, SLEEP)

    steps = awaiting_saves(given)["evaluator"]["postconfig"]

    assert steps[:2] == [KEYS, SLEEP]
    assert [step["type"] for step in steps[2:]] == ["execute"]
    assert given == task(KEYS, SLEEP)


@pytest.mark.parametrize(
    "given",
    [
        task(),
        task(SLEEP),
        {"config": [KEYS], "evaluator": {"func": "infeasible"}},
        task({"type": "execute", "parameters": {"command": "ls"}}),
    ],
)
def test_nothing_else_is_waited_for(given: dict[str, Any]) -> None:
    assert awaiting_saves(given) == given
