"""Evaluators that press keys get a wait after them; no others do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rollout_tasks.environments.osworld.pending_saves import awaiting_saves

KEYS = {
    "type": "execute",
    "parameters": {"command": ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's')"]},
}
SLEEP = {"type": "sleep", "parameters": {"seconds": 0.5}}


def task(*postconfig: dict[str, Any]) -> dict[str, Any]:
    return {"config": [], "evaluator": {"func": "f", "postconfig": list(postconfig)}}


CONVERT = {"type": "execute", "parameters": {"command": ["libreoffice", "--convert-to", "csv", "a.xlsx"]}}


def test_a_wait_comes_after_whatever_presses_keys_and_at_the_end() -> None:
    given = task(KEYS, SLEEP, CONVERT, KEYS)

    steps = awaiting_saves(given)["evaluator"]["postconfig"]

    wait = steps[1]
    assert "/proc/[0-9]*/stat" in wait["parameters"]["command"][-1]
    assert steps == [KEYS, wait, SLEEP, CONVERT, KEYS, wait]
    assert given == task(KEYS, SLEEP, CONVERT, KEYS)
    assert awaiting_saves(task(KEYS, CONVERT))["evaluator"]["postconfig"] == [KEYS, wait, CONVERT, wait]


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


def programs() -> re.Pattern[str]:
    code = awaiting_saves(task(KEYS))["evaluator"]["postconfig"][1]["parameters"]["command"][-1]
    there: dict[str, Any] = {}
    exec(code.partition("def work")[0], there)  # noqa: S102 (our own)
    found: re.Pattern[str] = there["PROGRAMS"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "soffice.bin",
        "soffice",
        "oosplash",
        "gimp",
        "gimp-2.10",
        "gimp-3.0",
        "thunderbird",
        "thunderbird-esr",
        "vlc",
        "code",
    ],
)
def test_programs_that_save_are_waited_for(name: str) -> None:
    assert programs().fullmatch(name)


@pytest.mark.parametrize(
    "name",
    ["codec-server", "codeblocks", "geditor", "vlc-watch", "code-watch", "vlcd", "gimps", "sofficex", "my-gimp", ""],
)
def test_others_of_like_names_are_not(name: str) -> None:
    assert not programs().fullmatch(name)
