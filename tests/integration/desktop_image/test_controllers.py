"""The guest's server against its real client: the controllers of the unmodified desktop-env."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from PIL import Image, ImageChops

from tests.integration.desktop_image.conftest import SCREEN, Desktop

EVENTS = Path(__file__).with_name("events.py")


@pytest.fixture
def events(desktop: Desktop, setup: Any) -> Iterator[Any]:
    """A window in the middle of the screen, and a function that tells what it has seen since the last call."""
    setup.setup(
        [
            {
                "type": "upload_file",
                "parameters": {"files": [{"local_path": str(EVENTS), "path": "/home/user/events.py"}]},
            }
        ]
    )
    setup.setup(
        [{"type": "launch", "parameters": {"command": ["python3", "/home/user/events.py", "/home/user/events"]}}]
    )
    setup.setup(
        [{"type": "execute", "parameters": {"command": "wmctrl -a Events", "shell": True, "until": {"returncode": 0}}}]
    )
    seen = 0

    def new(count: int) -> list[str]:
        nonlocal seen
        deadline = time.monotonic() + 60
        while (
            len(lines := desktop.shell("cat /home/user/events").splitlines()[seen:]) < count
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        seen += len(lines)
        return lines

    desktop.shell("until [ $(xdotool getactivewindow getwindowname) = Events ]; do sleep 0.05; done")
    yield new
    desktop.shell("pkill -f events.py")


FIRST_KEY = """
import time
from Xlib import X, display
from Xlib.ext import xtest
here = display.Display()
for kind in (X.KeyPress, X.KeyRelease):
    xtest.fake_input(here, kind, 50)
here.sync()
time.sleep(0.5)
here.sync()
print([here.next_event().type == X.MappingNotify for _ in range(here.pending_events())])
"""


def test_the_keyboard_is_in_use_before_anyone_presses_a_key(control: Any, desktop: Desktop) -> None:
    # The first of all tests here. A keyboard that X tells of anew costs the window manager keys that are pressed meanwhile.
    assert control.get_screenshot()
    assert desktop.shell(f"python3 -c '{FIRST_KEY}'") == "[]\n"


def test_screenshots_are_of_the_whole_screen_with_the_pointer(control: Any) -> None:
    def taken_at(x: int, y: int) -> Image.Image:
        control.execute_action({"action_type": "MOVE_TO", "parameters": {"x": x, "y": y}})
        return Image.open(io.BytesIO(control.get_screenshot())).convert("RGB")

    first, second = taken_at(600, 300), taken_at(900, 200)
    assert first.size == SCREEN
    left, top, right, bottom = ImageChops.difference(first, second).getbbox()
    assert 580 <= left <= 600
    assert 180 <= top <= 200
    assert 900 <= right <= 930
    assert 300 <= bottom <= 330


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"action_type": "CLICK", "parameters": {"x": 500, "y": 300}}, ["down 1 500 300", "up 1 500 300"]),
        (
            {"action_type": "CLICK", "parameters": {"button": "left", "x": 510, "y": 300, "num_clicks": 2}},
            ["down 1 510 300", "up 1 510 300"] * 2,
        ),
        ({"action_type": "RIGHT_CLICK", "parameters": {"x": 520, "y": 310}}, ["down 3 520 310", "up 3 520 310"]),
        ({"action_type": "DOUBLE_CLICK", "parameters": {"x": 600, "y": 300}}, ["down 1 600 300", "up 1 600 300"] * 2),
        (
            {"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -2}},
            ["down 5 600 300", "up 5 600 300"] * 2,
        ),
        ({"action_type": "SCROLL", "parameters": {"dx": 2}}, ["down 7 600 300", "up 7 600 300"] * 2),
        ({"action_type": "DRAG_TO", "parameters": {"x": 700, "y": 400}}, ["down 1 600 300", "up 1 700 400"]),
        ({"action_type": "PRESS", "parameters": {"key": "enter"}}, ["key Return 700 400", "keyup Return 700 400"]),
        (
            {"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "b"]}},
            ["key Control_L 700 400", "key b 700 400", "keyup b 700 400", "keyup Control_L 700 400"],
        ),
        ({"action_type": "TYPING", "parameters": {"text": "aé"}}, None),
    ],
    ids=lambda value: value["action_type"] if isinstance(value, dict) else "",
)
def test_actions_reach_the_window(
    control: Any, events: Any, action: dict[str, Any], expected: list[str] | None
) -> None:
    if action["action_type"] in ("SCROLL", "DRAG_TO"):
        control.execute_python_command("pyautogui.moveTo(600, 300)")
    elif action["action_type"] in ("PRESS", "HOTKEY"):
        control.execute_python_command("pyautogui.moveTo(700, 400)")
    control.execute_action(action)
    if expected is None:
        assert events(2)[0].startswith("key a ")
    else:
        assert events(len(expected)) == expected


def test_what_is_held_stays_down_until_it_is_released(control: Any, events: Any, desktop: Desktop) -> None:
    control.execute_python_command("pyautogui.moveTo(700, 400)")
    assert requests.get(desktop.url("/cursor_position"), timeout=30).json() == [700, 400]
    control.execute_action({"action_type": "MOUSE_DOWN", "parameters": {"button": "middle"}})
    assert events(1) == ["down 2 700 400"]
    control.execute_action({"action_type": "MOUSE_UP", "parameters": {"button": "middle"}})
    assert events(1) == ["up 2 700 400"]
    control.execute_action({"action_type": "KEY_DOWN", "parameters": {"key": "x"}})
    assert events(1)[0] == "key x 700 400"
    control.execute_action({"action_type": "KEY_UP", "parameters": {"key": "x"}})
    assert events(1)[-1] == "keyup x 700 400"  # a key that is held repeats itself


def test_text_typed_into_the_editor_is_in_the_file(control: Any, setup: Any, desktop: Desktop, cache: Path) -> None:
    (cache / "notes.txt").write_text("")
    path = "/home/user/Desktop/notes.txt"
    setup.setup([
        {"type": "upload_file", "parameters": {"files": [{"local_path": str(cache / "notes.txt"), "path": path}]}},
        {"type": "open", "parameters": {"path": path}},
        {"type": "activate_window", "parameters": {"window_name": "notes.txt (~/Desktop) - gedit", "strict": True}},
    ])  # fmt: skip
    text = "Every key: " + "".join(map(chr, range(33, 127)))
    control.execute_action({"action_type": "TYPING", "parameters": {"text": text}})
    control.execute_action({"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "s"]}})
    desktop.shell(f"until [ -s {path} ]; do sleep 0.05; done")
    assert control.get_file(path).decode().strip() == text
    setup.setup([{"type": "close_window", "parameters": {"window_name": "gedit"}}])
    assert not [title for title in desktop.windows() if "gedit" in title]


def test_the_machine_has_an_id_for_programs_that_end_without_one(desktop: Desktop) -> None:
    assert len(desktop.shell("dbus-uuidgen --get").strip()) == 32


def test_what_the_guest_tells_of_itself(control: Any) -> None:
    assert control.get_vm_platform() == "Linux"
    assert control.get_vm_screen_size() == {"width": SCREEN[0], "height": SCREEN[1]}
    assert control.get_vm_desktop_path() == "/home/user/Desktop"
    tree = control.get_vm_directory_tree("/home/user")
    assert (tree["type"], tree["name"]) == ("directory", "user")
    names = {child["name"]: child["type"] for child in tree["children"]}
    assert {"Desktop", "Documents", "Downloads", "Music", "Pictures", "Videos"} <= names.keys()
    assert names["Desktop"] == "directory"


def test_a_window_is_measured_by_its_class(control: Any, setup: Any, desktop: Desktop) -> None:
    desktop.launch("thunar")
    setup.setup(
        [{"type": "execute", "parameters": {"command": "wmctrl -l", "shell": True, "until": {"stdout": "Thunar"}}}]
    )
    size = control.get_vm_window_size("Thunar")
    assert 300 < size["width"] <= SCREEN[0]
    assert 200 < size["height"] <= SCREEN[1]
    setup.setup([{"type": "close_window", "parameters": {"window_name": "thunar.Thunar", "by_class": True}}])


def test_the_wallpaper_changes_and_is_returned(control: Any, setup: Any, cache: Path) -> None:
    picture = cache / "red picture.png"
    Image.new("RGB", (64, 48), (200, 10, 10)).save(picture)
    path = "/home/user/Pictures/red picture.png"
    setup.setup([
        {"type": "upload_file", "parameters": {"files": [{"local_path": str(picture), "path": path}]}},
        {"type": "change_wallpaper", "parameters": {"path": path}},
    ])  # fmt: skip
    assert control.get_vm_wallpaper() == picture.read_bytes()
    deadline = time.monotonic() + 60
    while _pixel(control, 640, 200) != (200, 10, 10) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _pixel(control, 640, 200) == (200, 10, 10)


def _pixel(control: Any, x: int, y: int) -> tuple[int, ...]:
    pixel = Image.open(io.BytesIO(control.get_screenshot())).convert("RGB").getpixel((x, y))
    assert isinstance(pixel, tuple)
    return pixel


def test_the_terminal_is_read(control: Any, setup: Any, desktop: Desktop) -> None:
    assert control.get_terminal_output() is None
    desktop.launch("gnome-terminal -- bash -c 'echo seen in the terminal; sleep 1000'")
    deadline = time.monotonic() + 60
    while "seen" not in (control.get_terminal_output() or "") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert control.get_terminal_output() == "seen in the terminal"
    setup.setup([{"type": "execute", "parameters": {"command": ["/bin/bash", "-c", "killall gnome-terminal-server"]}}])


def test_a_recording_can_be_played(control: Any, setup: Any, desktop: Desktop, cache: Path) -> None:
    control.start_recording()
    until = time.monotonic() + 3  # for fifteen frames where nothing else goes on, and two or three on a busy machine
    while time.monotonic() < until:
        control.execute_python_command("pyautogui.moveTo(100 + pyautogui.position().x % 800, 300)")
    control.end_recording(str(cache / "recording.mp4"))
    content = (cache / "recording.mp4").read_bytes()
    assert content[4:8] == b"ftyp"
    assert content.index(b"moov") < content.index(b"mdat")
    control.end_recording(str(cache / "again.mp4"))
    assert (cache / "again.mp4").read_bytes() == content
    upload = {"local_path": str(cache / "recording.mp4"), "path": "/home/user/recording.mp4"}
    setup.setup([{"type": "upload_file", "parameters": {"files": [upload]}}])
    probed = desktop.shell(
        "ffprobe -v error -count_frames -show_entries stream=width,height,nb_read_frames -of csv=p=0 /home/user/recording.mp4"
    )
    width, height, frames = map(int, probed.split(","))
    assert (width, height) == SCREEN
    assert frames >= 2


def test_code_and_scripts_run(control: Any) -> None:
    assert control.run_python_script("print(6 * 7)")["output"] == "42\n"
    assert "ZeroDivisionError" in control.run_python_script("1 / 0")["error"]
    done = control.run_bash_script("cd /tmp\necho one\necho two >&2\nexit 3")
    assert (done["output"], done["returncode"]) == ("one\ntwo\n", 3)
    assert control.run_bash_script("pwd", working_dir="/home/user/Desktop")["output"] == "/home/user/Desktop\n"
    late = control.run_bash_script("echo begun; sleep 1000", timeout=1)
    assert late["returncode"] == -1
    assert "timed out after 1 seconds" in late["error"]


def test_every_method_of_the_controller_is_played_here() -> None:
    from desktop_env.controllers.python import PythonController

    played = Path(__file__).read_text()
    public = [name for name in vars(PythonController) if not name.startswith("_")]
    elsewhere = {"get_accessibility_tree"}  # test_accessibility.py
    assert [name for name in public if f"control.{name}(" not in played and name not in elsewhere] == []


def test_every_action_is_played_here() -> None:
    from desktop_env.actions import ACTION_SPACE

    played = Path(__file__).read_text()
    kinds = {action["action_type"] for action in ACTION_SPACE}
    assert len(kinds) == 16
    not_sent = {"WAIT", "FAIL", "DONE"}  # they end or pause an episode
    assert [kind for kind in sorted(kinds - not_sent) if f'"action_type": "{kind}"' not in played] == []


@pytest.mark.parametrize("endpoint", ["/setup/open_file", "/file", "/setup/activate_window"])
def test_what_is_not_there_is_said_in_a_sentence(desktop: Desktop, endpoint: str) -> None:
    if endpoint == "/file":
        reply = requests.post(desktop.url(endpoint), data={"file_path": "/nowhere"}, timeout=30)
    else:
        reply = requests.post(desktop.url(endpoint), json={"path": "/nowhere", "window_name": "nowhere"}, timeout=30)
    assert reply.status_code == 404
    assert "nowhere" in reply.json()["message"]
