"""What calls of each action space become, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.agents.tool_calls import ToolCallReader, UnusableCallError
from rollout_tasks.environments.base import ToolCall
from rollout_tasks.environments.osworld.action_spaces import SPACES
from rollout_tasks.environments.osworld.action_spaces.base import CallRefused, Plan, View
from rollout_tasks.models.base import RawToolCall

VIEW = View((1920, 1080))
WITH_MARKS = View((1920, 1080), {1: (10, 20), 2: (300, 400)})


def plan(space: str, name: str, arguments: dict[str, Any], view: View = VIEW) -> Plan:
    planned = SPACES[space].plan(ToolCall("1", name, arguments), view)
    assert isinstance(planned, Plan)
    return planned


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("desktop_mouse_move", {"x": 5, "y": 6.5}, {"action_type": "MOVE_TO", "x": 5, "y": 6.5}),
        ("desktop_mouse_click", {}, {"action_type": "CLICK"}),
        (
            "desktop_mouse_click",
            {"x": 0, "y": 1079, "button": "middle", "num_clicks": 3},
            {"action_type": "CLICK", "x": 0, "y": 1079, "button": "middle", "num_clicks": 3},
        ),
        ("desktop_mouse_right_click", {"x": 1, "y": 2}, {"action_type": "RIGHT_CLICK", "x": 1, "y": 2}),
        ("desktop_mouse_double_click", {"x": 1, "y": 2}, {"action_type": "DOUBLE_CLICK", "x": 1, "y": 2}),
        ("desktop_mouse_button", {"action": "down"}, {"action_type": "MOUSE_DOWN", "button": "left"}),
        ("desktop_mouse_button", {"action": "up", "button": "right"}, {"action_type": "MOUSE_UP", "button": "right"}),
        ("desktop_mouse_drag", {"x": 7, "y": 8}, {"action_type": "DRAG_TO", "x": 7, "y": 8}),
        ("desktop_scroll", {"dx": 0, "dy": -3}, {"action_type": "SCROLL", "dy": -3}),
        ("desktop_type", {"text": "Grüße 'x'"}, {"action_type": "TYPING", "text": "Grüße 'x'"}),
        ("desktop_key_press", {"key": "Return"}, {"action_type": "PRESS", "key": "return"}),
        ("desktop_key_hold", {"action": "down", "key": "Shift_L"}, {"action_type": "KEY_DOWN", "key": "shiftleft"}),
        ("desktop_key_hold", {"action": "up", "key": "a"}, {"action_type": "KEY_UP", "key": "a"}),
        ("desktop_hotkey", {"keys": ["Control", "s"]}, {"action_type": "HOTKEY", "keys": ["ctrl", "s"]}),
        ("desktop_hotkey", {"keys": ["Ctrl", "A"]}, {"action_type": "HOTKEY", "keys": ["ctrl", "a"]}),
        ("desktop_hotkey", {"keys": ["ctrl", "shift", "T"]}, {"action_type": "HOTKEY", "keys": ["ctrl", "shift", "t"]}),
        ("desktop_hotkey", {"keys": ["A"]}, {"action_type": "HOTKEY", "keys": ["A"]}),
        ("desktop_control", {"action": "wait"}, "WAIT"),
    ],
)
def test_computer_13_calls_are_osworlds_actions(name: str, arguments: dict[str, Any], action: Any) -> None:
    planned = plan("computer_13", name, {**arguments, "pause": 0.5})

    assert planned.action == action
    assert planned.pause == 0.5
    assert planned.ends is None


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("desktop_mouse_click", {"x": 1920, "y": 5}, r"\(1920, 5\) is outside the screen of 1920x1080 pixels"),
        ("desktop_mouse_click", {"x": -1, "y": 5}, "outside"),
        ("desktop_mouse_click", {"x": 1}, "x and y belong together, only x was given"),
        ("desktop_mouse_move", {}, "x and y are needed"),
        ("desktop_mouse_drag", {}, "x and y are needed"),
        ("desktop_mouse_click", {"mark": 1}, "there is no mark 1"),
        ("desktop_scroll", {}, "dx or dy must be given"),
        ("desktop_scroll", {"dx": 0, "dy": 0}, "dx or dy must be given"),
        ("desktop_key_press", {"key": "Retrun"}, "unknown key 'Retrun'"),
        ("desktop_hotkey", {"keys": ["ctrl", "nothing"]}, "unknown key 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CallRefused, match=said):
        plan("computer_13", name, arguments)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("word", "action", "ends"), [("done", "DONE", "done"), ("fail", "FAIL", "fail")])
def test_every_space_can_end_the_episode(space: str, word: str, action: str, ends: str) -> None:
    planned = plan(space, "desktop_control", {"action": word})

    assert (planned.action, planned.ends) == (action, ends)


def test_marks_stand_for_coordinates_where_they_are_drawn() -> None:
    clicked = plan("computer_13", "desktop_mouse_click", {"mark": 2}, WITH_MARKS)
    assert clicked.action == {"action_type": "CLICK", "x": 300, "y": 400}
    clicked = plan("claude_computer_use", "computer", {"action": "left_click", "mark": 1}, WITH_MARKS)
    assert clicked.action == [{"action_type": "CLICK", "x": 10, "y": 20, "button": "left", "num_clicks": 1}]
    with pytest.raises(CallRefused, match="there is no mark 3 on the screen; marks: 1 to 2"):
        plan("computer_13", "desktop_mouse_click", {"mark": 3}, WITH_MARKS)


@pytest.mark.parametrize("space", SPACES)
def test_marks_are_offered_only_where_they_are_drawn(space: str) -> None:
    without = str(SPACES[space].tools(VIEW))
    with_marks = str(SPACES[space].tools(WITH_MARKS))

    assert "'mark'" not in without
    assert ("'mark'" in with_marks) == (space != "pyautogui")


@pytest.mark.parametrize("space", SPACES)
def test_schemas_are_valid_and_refuse_what_they_do_not_know(space: str) -> None:
    tools = SPACES[space].tools(WITH_MARKS)
    reader = ToolCallReader(tools)

    for tool in tools:
        with pytest.raises(UnusableCallError):
            reader.read(RawToolCall("1", tool.name, '{"nonsense": 1}'), cut_off=False)
        with pytest.raises(UnusableCallError):
            reader.read(RawToolCall("1", tool.name, '{"pause": -1}'), cut_off=False)


def test_a_script_is_run_as_it_is_unless_it_is_one_of_osworlds_words() -> None:
    script = "for i in range(3):\n    pyautogui.press('a')"
    assert plan("pyautogui", "desktop_execute_python_script", {"script": script}).action == script
    assert plan("pyautogui", "desktop_execute_python_script", {"script": " DONE\n"}).ends == "done"
    assert plan("pyautogui", "desktop_execute_python_script", {"script": "FAIL"}).ends == "fail"
    assert plan("pyautogui", "desktop_execute_python_script", {"script": "WAIT", "pause": 3}) == Plan("WAIT", "WAIT", 3)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({"action": "left_click", "coordinate": [1, 2], "text": "ctrl+shift"}, "KEY_DOWN KEY_DOWN CLICK KEY_UP KEY_UP"),
        ({"action": "triple_click", "coordinate": [1, 2]}, "CLICK"),
        ({"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]}, "MOVE_TO DRAG_TO"),
        ({"action": "left_mouse_down", "coordinate": [1, 2]}, "MOVE_TO MOUSE_DOWN"),
        ({"action": "left_mouse_up"}, "MOUSE_UP"),
        ({"action": "key", "text": "ctrl+s"}, "HOTKEY"),
        ({"action": "hold_key", "text": "shift", "duration": 1}, "KEY_DOWN SLEEP KEY_UP"),
        ({"action": "type", "text": "a"}, "TYPING"),
        ({"action": "mouse_move", "coordinate": [1, 2]}, "MOVE_TO"),
        (
            {"action": "scroll", "scroll_direction": "left", "scroll_amount": 2, "text": "ctrl"},
            "KEY_DOWN SCROLL KEY_UP",
        ),
        ({"action": "cursor_position"}, "POSITION"),
    ],
)
def test_claudes_actions_are_made_of_osworlds(arguments: dict[str, Any], kinds: str) -> None:
    action = plan("claude_computer_use", "computer", arguments).action

    assert isinstance(action, list)
    assert [part["action_type"] for part in action] == kinds.split()


def test_claude_scrolls_and_holds_the_right_way() -> None:
    down = plan(
        "claude_computer_use", "computer", {"action": "scroll", "coordinate": [1, 2], "scroll_direction": "down"}
    )
    assert down.action == [{"action_type": "SCROLL", "x": 1, "y": 2, "dy": -3}]
    held = plan("claude_computer_use", "computer", {"action": "left_click", "text": "ctrl+shift"}).action
    assert isinstance(held, list)
    assert [part.get("key") for part in held] == ["ctrl", "shift", None, "shift", "ctrl"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Ctrl+A", ["ctrl", "a"]),
        ("ctrl+shift+T", ["ctrl", "shift", "t"]),
        ("A", ["A"]),
        ("ctrl++", ["ctrl", "+"]),
    ],
)
def test_a_capital_in_a_combination_adds_no_shift(text: str, keys: list[str]) -> None:
    """With pyautogui, ``A`` is shift and ``a``; models write the names of keys as they stand on a keyboard."""
    pressed = plan("claude_computer_use", "computer", {"action": "key", "text": text}).action
    held = plan("claude_computer_use", "computer", {"action": "hold_key", "text": text}).action

    assert pressed == [{"action_type": "HOTKEY", "keys": keys}]
    assert isinstance(held, list)
    assert [part["key"] for part in held if part["action_type"] == "KEY_DOWN"] == keys


def test_claude_may_look_without_acting_and_wait() -> None:
    assert plan("claude_computer_use", "computer", {"action": "screenshot"}) == Plan(None, "screenshot", 0)
    assert plan("claude_computer_use", "computer", {"action": "wait", "duration": 2}) == Plan("WAIT", "wait", 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "mouse_move"}, "coordinate is needed for mouse_move"),
        ({"action": "left_click", "coordinate": [1, 1080]}, "outside the screen"),
        ({"action": "type"}, "text is needed for type"),
        ({"action": "key", "text": "ctrl+nothing"}, "unknown key in 'ctrl\\+nothing'"),
        ({"action": "scroll"}, "scroll_direction is needed"),
        ({"action": "left_click_drag"}, "coordinate is needed"),
    ],
)
def test_claude_is_told_what_is_missing(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CallRefused, match=said):
        plan("claude_computer_use", "computer", arguments)


@pytest.mark.parametrize("key", ["volumeup", "browserback", "PlayPause", "launchmail", "clear"])
@pytest.mark.parametrize(
    ("space", "name", "arguments"),
    [
        ("computer_13", "desktop_key_press", {"key": "{}"}),
        ("computer_13", "desktop_key_hold", {"key": "{}", "action": "down"}),
        ("computer_13", "desktop_hotkey", {"keys": ["{}"]}),
        ("claude_computer_use", "computer", {"action": "key", "text": "{}"}),
        ("claude_computer_use", "computer", {"action": "hold_key", "text": "{}"}),
        ("claude_computer_use", "computer", {"action": "left_click", "text": "{}"}),
    ],
)
def test_windows_has_keys_that_x11_lacks(space: str, name: str, arguments: dict[str, Any], key: str) -> None:
    arguments = json.loads(json.dumps(arguments).replace("{}", key))

    planned = plan(space, name, arguments, View((1920, 1080), system="Windows"))

    assert key.lower() in json.dumps(planned.action)
    with pytest.raises(CallRefused, match="unknown key"):
        plan(space, name, arguments)
