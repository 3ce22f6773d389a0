"""Every action of every space, done on a real screen and seen by a program there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.desktops import needs_local_desktops
from tests.integration.environments.osworld.conftest import Desk, Play
from tests.integration.environments.osworld.event_log import SETUP
from tests.virtual_machines import wait_until

pytestmark = needs_local_desktops

Begin = Callable[..., Play]

MARK = ["down 2", "up 2", "down 4", "up 4", "down 2", "up 2"]
"""Clicks that no test does."""


@pytest.fixture
def log(desk: Desk, clean: None) -> Callable[[], list[str]]:
    """What happened since it was last asked, without movements."""
    read = 0

    def since() -> list[str]:
        """What came before a key and these clicks: the window manager may hold clicks back, keys pass them."""
        nonlocal read
        desk.run("xdotool key F12 click 2 click 4 click 2")
        deadline = time.monotonic() + 60
        while True:
            lines = desk.run("cat /home/user/events.log").splitlines()
            new = [line for line in lines[read:] if not line.startswith("move")]
            without = [line for line in new if "F12" not in line]
            if any(line.startswith("release F12") for line in new) and kinds(without[-len(MARK) :]) == MARK:
                read = len(lines)
                return without[: -len(MARK)]
            assert time.monotonic() < deadline, lines
            time.sleep(0.05)

    return since


def kinds(lines: list[str]) -> list[str]:
    """Without the places."""
    return [" ".join(line.split()[:2]) for line in lines]


@pytest.mark.slow
def test_computer_13(play: Begin, desk: Desk, log: Callable[[], list[str]]) -> None:
    playing = play(SETUP, action_space="computer_13")
    act = playing.act

    act("desktop_mouse_click", x=300, y=200)
    assert log() == ["down 1 300 200", "up 1 300 200"]
    act("desktop_mouse_click", button="right", num_clicks=2)
    assert kinds(log()) == ["down 3", "up 3"] * 2
    act("desktop_mouse_move", x=500, y=401)
    assert log() == []
    assert "\nmove  500 401\n" in desk.run("cat /home/user/events.log")
    act("desktop_mouse_right_click", x=1, y=2)
    assert log() == ["down 3 1 2", "up 3 1 2"]
    act("desktop_mouse_double_click", x=1279, y=719)
    assert log() == ["down 1 1279 719", "up 1 1279 719"] * 2
    act("desktop_mouse_move", x=100, y=100)
    act("desktop_mouse_drag", x=200, y=150)
    assert log() == ["down 1 100 100", "up 1 200 150"]
    act("desktop_mouse_button", action="down")
    act("desktop_mouse_move", x=210, y=160)
    act("desktop_mouse_button", action="up")
    assert log() == ["down 1 200 150", "up 1 210 160"]
    act("desktop_scroll", dy=-2)
    act("desktop_scroll", dx=1, dy=1)
    assert [line for line in kinds(log()) if "down" in line] == ["down 5", "down 5", "sidedown 5", "down 4"]
    act("desktop_key_press", key="Return")
    assert kinds(log()) == ["press Return", "release Return"]
    act("desktop_hotkey", keys=["ctrl", "shift", "t"])
    assert kinds(log()) == [
        "press Control_L",
        "press Shift_L",
        "press T",
        "release T",
        "release Shift_L",
        "release Control_L",
    ]
    act("desktop_key_hold", action="down", key="shift")
    act("desktop_mouse_click")
    act("desktop_key_hold", action="up", key="shift")
    assert kinds(log()) == ["press Shift_L", "down 1", "up 1", "release Shift_L"]
    act("desktop_key_press", key="<")
    assert "press less" in kinds(log())
    act("desktop_type", text="a<")
    assert kinds([line for line in log() if "Shift" not in line and "press" in line]) == ["press a", "press less"]


def test_what_cannot_be_done_leaves_the_screen_alone(play: Begin, log: Callable[[], list[str]]) -> None:
    playing = play(SETUP, action_space="computer_13")

    outside = playing.do("desktop_mouse_click", x=1280, y=5)

    assert outside.status == "failed"
    assert outside.response == (
        "Validation failed for desktop_mouse_click: (1280, 5) is outside the screen of 1280x720 pixels"
    )
    assert outside.observation is None
    assert playing.do("desktop_key_press", key="wat").status == "failed"
    assert log() == []


@pytest.mark.slow
def test_claude_computer_use(play: Begin, log: Callable[[], list[str]]) -> None:
    playing = play(SETUP, action_space="claude_computer_use")

    def act(action: str, **arguments: Any) -> str:
        return playing.act("computer", action=action, **arguments).response

    act("left_click", coordinate=[300, 200])
    assert log() == ["down 1 300 200", "up 1 300 200"]
    act("triple_click", coordinate=[5, 6])
    assert log() == ["down 1 5 6", "up 1 5 6"] * 3
    act("left_click", coordinate=[300, 200], text="ctrl")
    assert kinds(log()) == ["press Control_L", "down 1", "up 1", "release Control_L"]
    act("middle_click", coordinate=[7, 8])
    act("right_click")
    assert log() == ["down 2 7 8", "up 2 7 8", "down 3 7 8", "up 3 7 8"]
    act("left_click_drag", start_coordinate=[50, 60], coordinate=[70, 80])
    assert log() == ["down 1 50 60", "up 1 70 80"]
    act("left_mouse_down", coordinate=[90, 100])
    act("mouse_move", coordinate=[95, 105])
    act("left_mouse_up")
    assert log() == ["down 1 90 100", "up 1 95 105"]
    act("scroll", coordinate=[10, 20], scroll_direction="up", scroll_amount=2)
    assert [line for line in log() if line.startswith("down")] == ["down 4 10 20"] * 2
    act("key", text="ctrl+Page_Down")
    assert "press Next" in kinds(log())
    act("hold_key", text="shift", duration=0.2)
    assert kinds(log()) == ["press Shift_L", "release Shift_L"]
    act("type", text="xy")
    assert kinds(log()) == ["press x", "release x", "press y", "release y"]
    assert act("cursor_position") == "Action executed successfully: cursor_position\n10 20"
    looked = playing.act("computer", action="screenshot")
    assert looked.observation is not None
    assert looked.observation.images
    act("wait", duration=0.1)
    assert log() == []


def test_pyautogui(play: Begin, log: Callable[[], list[str]]) -> None:
    playing = play(SETUP, action_space="pyautogui")

    def run(script: str) -> Any:
        return playing.do("desktop_execute_python_script", script=script)

    assert run("for x in (10, 20):\n    pyautogui.click(x, 30)\n    time.sleep(0.05)").status == "success"
    assert log() == ["down 1 10 30", "up 1 10 30", "down 1 20 30", "up 1 20 30"]
    printed = run("print('size', pyautogui.size())")
    assert printed.response == "Action executed successfully: script\nsize Size(width=1280, height=720)"
    assert run("pyautogui.write('a{b}')").status == "success"
    assert "press braceleft" in kinds(log())
    broken = run("pyautogui.click(1, 1)\nprint('here')\nraise ValueError('wrong')")
    assert broken.status == "failed"
    assert broken.response.startswith("Execution failed for desktop_execute_python_script: ")
    assert broken.response.endswith("ValueError: wrong\nhere")
    assert broken.observation is not None
    done = run("DONE")
    assert (done.status, done.ends_episode) == ("success", "done")


TEXT = "Plain <text> with 'quotes', \\ and {braces}\n\tGrüße — 10 € für 日本語, ελληνικά и русский\n"


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    "space",
    [
        "computer_13",
        pytest.param("pyautogui", marks=pytest.mark.slow),
        pytest.param("claude_computer_use", marks=pytest.mark.slow),
    ],
)
def test_any_text_can_be_typed(space: str, play: Begin, desk: Desk) -> None:
    desk.run(
        "cat > /home/user/take.py <<'EOF'\nimport tkinter\nroot = tkinter.Tk()\nroot.attributes('-fullscreen', True)\n"
        "box = tkinter.Text(root)\nbox.pack()\nroot.after(300, box.focus_force)\n"
        "def keep():\n    open('/home/user/taken.txt', 'w').write(box.get('1.0', 'end-1c'))\n    root.after(100, keep)\n"
        "keep()\nroot.mainloop()\nEOF"
    )
    playing = play(
        [{"type": "launch", "parameters": {"command": ["python3", "/home/user/take.py"]}}], action_space=space
    )

    if space == "computer_13":
        playing.act("desktop_type", text=TEXT)
    elif space == "pyautogui":
        playing.act("desktop_execute_python_script", script=f"pyautogui.typewrite({TEXT!r}, interval=0.01)")
    else:
        playing.act("computer", action="type", text=TEXT)

    wait_until(lambda: desk.run("cat /home/user/taken.txt") == TEXT)
