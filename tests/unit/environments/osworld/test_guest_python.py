"""Actions as Python: valid, and with nothing of a model's text but values. What they do is tested on a real desktop."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from rollout_tasks.environments.osworld.guest_python import command_for
from rollout_tasks.environments.osworld.keys import KNOWN, known_combination, known_key

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""What desktop-env puts in front."""


def last_line(action: Any) -> str:
    command = PREFIX + command_for(action)
    ast.parse(command)
    return command.splitlines()[-1]


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ({"action_type": "MOVE_TO", "x": 1, "y": 2.5}, "pyautogui.moveTo(1, 2.5)"),
        ({"action_type": "CLICK"}, "pyautogui.click(clicks=1, button='left')"),
        (
            {"action_type": "CLICK", "x": 1, "y": 2, "num_clicks": 2, "button": "right"},
            "pyautogui.click(x=1, y=2, clicks=2, button='right')",
        ),
        ({"action_type": "RIGHT_CLICK"}, "pyautogui.rightClick()"),
        ({"action_type": "DOUBLE_CLICK", "x": 1, "y": 2}, "pyautogui.doubleClick(1, 2)"),
        ({"action_type": "SCROLL", "dx": 1, "dy": -2}, "pyautogui.hscroll(1); pyautogui.vscroll(-2)"),
        ({"action_type": "SCROLL", "dy": 0}, "pass"),
        ({"action_type": "PRESS", "key": "'"}, 'pyautogui.press("\'")'),
        ({"action_type": "PRESS", "key": "<"}, "pyautogui.hotkey('shift', ',')"),
        ({"action_type": "KEY_DOWN", "key": "a"}, "pyautogui.keyDown('a')"),
        ({"action_type": "KEY_DOWN", "key": "<"}, "pyautogui.keyDown('shift'); pyautogui.keyDown(',')"),
        ({"action_type": "KEY_UP", "key": "<"}, "pyautogui.keyUp(','); pyautogui.keyUp('shift')"),
        ({"action_type": "HOTKEY", "keys": ["<"]}, "pyautogui.hotkey('shift', ',')"),
        ({"action_type": "HOTKEY", "keys": ["ctrl", "<"]}, "pyautogui.hotkey('ctrl', 'shift', ',')"),
        ({"action_type": "HOTKEY", "keys": ["ctrl", "\\"]}, r"pyautogui.hotkey('ctrl', '\\')"),
    ],
)
def test_actions_are_calls_of_pyautogui(action: dict[str, Any], line: str) -> None:
    assert last_line(action) == line


@pytest.mark.parametrize(
    "text", ["plain", "'); import os; os.remove('x'); ('", '"""', "a\nb\\n\r\t", "{command}", "日本 😀"]
)
def test_typed_text_is_a_value_and_nothing_else(text: str) -> None:
    call = ast.parse(last_line({"action_type": "TYPING", "text": text})).body[0]

    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert [ast.literal_eval(argument) for argument in call.value.args] == [text]


def test_a_script_may_begin_with_a_block() -> None:
    ast.parse(PREFIX + command_for("for key in 'ab':\n    pyautogui.press(key)\n"))


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_every_known_key_can_be_pressed(key: str) -> None:
    ast.parse(PREFIX + command_for({"action_type": "PRESS", "key": key}))
    ast.parse(PREFIX + command_for({"action_type": "KEY_DOWN", "key": key}))


NOT_ON_X11 = frozenset(
    [
        "accept",
        "browserback",
        "browserfavorites",
        "browserforward",
        "browserhome",
        "browserrefresh",
        "browsersearch",
        "browserstop",
        "clear",
        "convert",
        "final",
        "fn",
        "hanguel",
        "hangul",
        "hanja",
        "junja",
        "kana",
        "kanji",
        "launchapp1",
        "launchapp2",
        "launchmail",
        "launchmediaselect",
        "modechange",
        "nexttrack",
        "nonconvert",
        "playpause",
        "prevtrack",
        "sleep",
        "stop",
        "volumedown",
        "volumemute",
        "volumeup",
        "yen",
    ]
)
"""Names in pyautogui 0.9.54's KEY_NAMES that its keyboardMapping for X11 has no keycode for: it presses nothing."""
OF_A_MAC = {"command": "win", "option": "alt", "optionleft": "altleft", "optionright": "altright"}
"""The others without a keycode, and the keys in their place."""


def test_every_key_of_desktop_env_is_pressed_or_refused() -> None:
    from desktop_env.actions import KEYBOARD_KEYS

    pressed = {name: known_key(name, "Ubuntu") for name in KEYBOARD_KEYS}
    assert {name for name, key in pressed.items() if key is None} == NOT_ON_X11
    assert {name: key for name, key in pressed.items() if key not in (None, name)} == OF_A_MAC
    assert set(KEYBOARD_KEYS) >= NOT_ON_X11
    assert {key for key in KNOWN - set(KEYBOARD_KEYS) if len(key) > 1} == {"space"}


def test_every_key_of_desktop_env_is_pressed_on_windows_or_refused() -> None:
    from desktop_env.actions import KEYBOARD_KEYS

    pressed = {name: known_key(name, "Windows") for name in KEYBOARD_KEYS}
    assert {name for name, key in pressed.items() if key is None} == {"fn", "yen", "\r"}
    assert {name: key for name, key in pressed.items() if key not in (None, name)} == OF_A_MAC
    assert known_combination("Ctrl+VolumeUp", "Windows") == ["ctrl", "volumeup"]


@pytest.mark.parametrize("name", sorted(NOT_ON_X11))
def test_no_combination_loses_a_key(name: str) -> None:
    assert known_combination(f"{name.upper()}+a", "Ubuntu") is None


def test_command_is_the_key_that_takes_its_place() -> None:
    assert known_combination("command+a") == ["win", "a"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Return", "return"),
        ("Page_Down", "pagedown"),
        ("super", "win"),
        ("A", "A"),
        ("F5", "f5"),
        (" ", " "),
        ("wat", None),
    ],
)
def test_keys_have_other_names(name: str, key: str | None) -> None:
    assert known_key(name) == key


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl+shift+T", ["ctrl", "shift", "T"]),
        ("ctrl++", ["ctrl", "+"]),
        ("+", ["+"]),
        ("ctrl+", None),
        ("++", None),
        ("ctrl+wat", None),
    ],
)
def test_combinations_are_split_at_the_plus(text: str, keys: list[str] | None) -> None:
    assert known_combination(text) == keys
