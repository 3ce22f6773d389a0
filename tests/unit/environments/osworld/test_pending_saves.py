"""Evaluators that press keys get a wait after them, those that read Chrome's files one before; no others do."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from rollout_tasks.environments.osworld.desktop_env_names import package_folder
from rollout_tasks.environments.osworld.desktop_env_patches import GETTERS
from rollout_tasks.environments.osworld.pending_saves import CHROMES_FILES, awaiting_saves

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


CLOSED = {"type": "launch", "parameters": {"command": ["pkill", "chrome"]}}


def reading(result: object, *postconfig: dict[str, Any]) -> dict[str, Any]:
    return {"evaluator": {"func": "f", "result": result, "postconfig": list(postconfig)}}


@pytest.mark.parametrize("result", [{"type": "bookmarks"}, [{"type": "rule"}, None, {"type": "enable_do_not_track"}]])
def test_chrome_has_time_to_write_what_is_read(result: object) -> None:
    """Before it is closed, too: it has seconds for that in which a busy machine may not get to it."""
    wait, *others = awaiting_saves(reading(result, CLOSED))["evaluator"]["postconfig"]

    assert "chrome" in wait["parameters"]["command"]
    assert others == [CLOSED]
    assert awaiting_saves(reading(result))["evaluator"]["postconfig"] == [wait]


def test_cookies_are_waited_for_as_long_as_chrome_keeps_them() -> None:
    for result, seconds in (([{"type": "history"}, {"type": "cookie_data"}], 32), ({"type": "history"}, 12)):
        (wait,) = awaiting_saves(reading(result))["evaluator"]["postconfig"]
        assert wait["parameters"]["command"].startswith(f"timeout {seconds} ")


def test_both_waits_have_their_places() -> None:
    steps = awaiting_saves(reading({"type": "history"}, KEYS))["evaluator"]["postconfig"]
    assert steps == [
        *awaiting_saves(reading({"type": "history"}))["evaluator"]["postconfig"],
        *awaiting_saves(task(KEYS))["evaluator"]["postconfig"],
    ]


def test_what_the_running_browser_is_asked_is_not_waited_for() -> None:
    given = reading([{"type": "active_tab_info"}, {"type": "chrome_appearance_mode_ui"}], CLOSED)
    assert awaiting_saves(given) == given


def test_every_getter_that_reads_chromes_files_is_known() -> None:
    package = package_folder()
    assert package is not None
    folder = re.compile(r"\.config(/|', ')google-chrome")
    known = set()
    for path in (package / "evaluators" / "getters").glob("*.py"):
        code = path.read_text(encoding="utf-8")
        for node in ast.parse(code).body:
            if isinstance(node, ast.FunctionDef) and folder.search(ast.get_source_segment(code, node) or ""):
                known.add(node.name.removeprefix("get_"))
    assert known | (GETTERS - {"chrome_appearance_mode_ui"}) == CHROMES_FILES


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
